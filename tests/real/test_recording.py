"""What a member delivered is on its disk, also after a crash, and can't be altered unnoticed."""

from pathlib import Path

import pytest

import samcast
from samcast.client.recording import RECORD_BYTES, Recorder, about_record, read_record
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.batch import Batch, columns_from_cells, make_batch


def batch(counter: int, count: int) -> Batch:
    return make_batch(
        group=1, sender=b"s" * 16, incarnation=1, counter_first=counter, count=count, birth=0,
        confirmed_below=1, seen=0, sent_ms=0, configuration=1,
        columns=columns_from_cells([b"x"] * count),
    )  # fmt: skip


def recorded(path: Path, first: int, runs: int) -> None:
    with Recorder(path, "demo/1", "orders") as recorder:
        for number in range(first, first + 3 * runs, 3):
            recorder.add(number, batch(number, 3))


@pytest.mark.req("PIP-06")
def test_a_record_is_gone_on_with_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "member"
    recorded(path, 1, 4)
    path.write_bytes(path.read_bytes()[:-5])  # The last record was cut off.
    assert [run.number for run in read_record(path)] == [1, 4, 7]
    recorded(path, 10, 2)
    found = list(read_record(path))
    assert [(run.number, run.count) for run in found] == [(n, 3) for n in (1, 4, 7, 10, 13)]
    assert found[1].digest == batch(4, 3).digest
    assert all(run.is_sound for run in found)


@pytest.mark.req("PIP-06")
@pytest.mark.parametrize("change", ["swap", "drop", "flip", "twice"])
def test_what_is_altered_breaks_the_chain_at_its_place(tmp_path: Path, change: str) -> None:
    path = tmp_path / "member"
    recorded(path, 1, 6)
    data = path.read_bytes()
    begin = len(data) - 6 * RECORD_BYTES
    runs = [data[begin + at * RECORD_BYTES :][:RECORD_BYTES] for at in range(6)]
    if change == "swap":
        runs[2], runs[3] = runs[3], runs[2]
    elif change == "drop":
        del runs[2]
    elif change == "flip":
        runs[2] = runs[2][:20] + bytes([runs[2][20] ^ 1]) + runs[2][21:]
    else:
        runs.insert(2, runs[1])
    path.write_bytes(data[:begin] + b"".join(runs))
    found = list(read_record(path))
    assert [run.is_sound for run in found[:3]] == [True, True, False]


@pytest.mark.req("PIP-06")
def test_reading_records_what_was_delivered(cluster: LocalCluster, tmp_path: Path) -> None:
    path = tmp_path / "member"
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.send_many([b"%d" % i for i in range(500)])
        group.flush(30)
        assert len(list(group.read(1, count=500, record=path))) == 500
        group.send(b"later").number(30)
        assert len(list(group.read(501, count=1, record=path))) == 1
        assert about_record(path).group == "orders"
        with pytest.raises(samcast.ConfigError, match="is the record of group 'orders'"):
            list(client.group("others").read(1, count=1, timeout=1, record=path))
        with pytest.raises(samcast.SamcastError, match="is no record"):
            list(group.read(1, count=1, record=__file__))
    found = list(read_record(path))
    assert sum(run.count for run in found) == 501
    assert all(run.is_sound for run in found)
