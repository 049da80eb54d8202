"""The data server's stages, numbers on disk, and repairs, by hand."""

import pytest

from samcast.group.data_server import DataServer
from samcast.group.listing import DataRecovery, Listed, Listing, columns_of
from samcast.group.recovery import DataScan
from samcast.group.storage import (
    DropBatch,
    Rotted,
    SendStored,
    StoreBatch,
    StoreMarks,
)
from samcast.machine.ports import Received, Send, Store, Stored, Ticked
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.change import Join
from samcast.wire.group import AnswerKind, PayloadRequest, Repair
from samcast.wire.order import CELL, AbortEntry, AnyEntry, DecisionEntry, Part
from samcast.wire.records import MARK_BYTES, MarkRecord, decode_mark
from tests.group.build import (
    BOB,
    CLIENT,
    GROUP,
    OWNER,
    batch,
    codes,
    data_server,
    key_of,
    only,
    open_entry,
    reported,
    run_entry,
    sent,
    settle,
    stage_ref,
)
from tests.group.test_data_server import (
    OPENING,
    answers,
    arrived,
    commit,
    reports,
    run_key,
    serving,
)

STAGES = [batch(1, 2, sender=OWNER, stage=n, text=f"s{n}") for n in (1, 2, 3)]
OPEN = open_entry(sender=OWNER, scope=CELL)


def staged() -> DataServer:
    server = serving()
    settle(server, [commit(server, OPEN)])
    settle(server, [arrived(stage) for stage in STAGES])
    return server


def test_stages_are_stored_and_reported_as_such() -> None:
    server = serving()
    settle(server, [commit(server, OPEN)])
    effects = settle(server, [arrived(stage) for stage in STAGES])
    assert len(only(StoreBatch, effects)) == 3
    (report,) = [r for r in reports(effects) if r.runs]
    assert [run.stage for run in report.runs] == [1, 2, 3]


def test_a_decision_numbers_its_stages_and_lets_the_others_go() -> None:
    server = staged()
    refs = (stage_ref(STAGES[1]), stage_ref(STAGES[0]))
    effects = server.step([commit(server, DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, refs),)))])
    assert only(DropBatch, effects) == [DropBatch(key_of(STAGES[2]))]
    numbers = [server.numbered.number_of(key_of(stage)) for stage in STAGES]
    assert numbers == [3, 1, 0]


@pytest.mark.parametrize(
    "entry",
    [AbortEntry(OWNER, 1, 1), open_entry(2, sender=OWNER, scope=CELL)],
    ids=["abort", "open"],
)
def test_stages_that_no_decision_can_name_any_more_are_dropped(entry: AnyEntry) -> None:
    server = staged()
    effects = server.step([commit(server, entry)])
    assert only(DropBatch, effects) == [DropBatch(key_of(stage)) for stage in STAGES]
    assert only(StoreBatch, server.step([arrived(STAGES[0])])) == []  # nor later ones taken


def test_a_stage_of_two_contents_is_turned_away_with_a_code() -> None:
    server = staged()
    effects = server.step([arrived(batch(1, 2, sender=OWNER, stage=1, text="other"))])
    assert codes(effects) == ["stage-conflict"]


# Numbers on disk, and repairs.


@pytest.mark.req("GRP-27")
def test_numbers_are_kept_beside_the_payloads() -> None:
    server = serving()
    settle(server, [arrived(batch(1))])
    effects = server.step([commit(server, run_entry(batch(1), 1))])
    (store,) = only(StoreMarks, effects)
    record = decode_mark(store.record)
    assert record.marks == ((*key_of(batch(1)), 1),)
    assert record.applied == 3
    assert server.applied == 2
    server.step([Stored(store.token)])
    assert server.applied == 3


@pytest.mark.req("GRP-27")
def test_a_committed_run_that_is_lacking_is_asked_for_by_number_from_one_peer_after_the_other() -> (
    None
):
    server = serving()
    settle(server, [commit(server, run_entry(batch(1, 2), 1))])
    asked = []
    for now_ms in range(1000, 1500, 50):
        asked += [e for e in only(Send, server.step([Ticked(now_ms)]))
                  if isinstance(e.message, PayloadRequest)]  # fmt: skip
    assert {effect.to for effect in asked} == {2, 3}
    assert {effect.message for effect in asked} == {PayloadRequest((), (), ((GROUP, 1, 2),))}
    assert server.applied == 2
    effects = settle(server, [Received(2, Repair(((1, encode_batch(batch(1, 2))),)))])
    assert [store.key for store in only(StoreBatch, effects)] == [key_of(batch(1, 2))]
    assert server.applied == 3


@pytest.mark.req("GRP-23", "GRP-27")
def test_whoever_lacks_much_asks_again_as_soon_as_it_has_an_answer() -> None:
    server = serving()
    lacking = [batch(1, 2), batch(3, 2), batch(5, 2)]
    settle(server, [commit(server, *(run_entry(of, of.counter_first) for of in lacking))])
    server.step([Ticked(1000)])

    def asked_after(of: Batch) -> list[object]:
        repair = Repair(((of.counter_first, encode_batch(of)),))
        effects = settle(server, [Received(2, repair)])
        return [m for m in sent(effects) if isinstance(m, PayloadRequest)]

    assert len(asked_after(lacking[0])) == 1  # and no time has passed
    assert asked_after(lacking[0]) == []  # it has brought nothing
    assert len(asked_after(lacking[1])) == 1
    assert asked_after(lacking[2]) == []  # all is there


@pytest.mark.req("GRP-27")
def test_a_repair_of_other_content_than_was_ordered_is_not_taken() -> None:
    server = serving()
    settle(server, [commit(server, run_entry(batch(1, 2), 1))])
    wrong = [batch(1, 2, text="other"), batch(1, 2, sender=BOB)]
    for of in wrong:
        assert only(Store, server.step([Received(2, Repair(((1, encode_batch(of)),)))])) == []


def test_content_that_lost_to_another_under_its_id_is_replaced() -> None:
    server = serving()
    settle(server, [arrived(batch(1, text="loser"))])
    settle(server, [commit(server, run_entry(batch(1), 1))])
    assert not server.numbered.is_whole
    effects = server.step([arrived(batch(1))])
    assert [store.batch.digest for store in only(StoreBatch, effects)] == [batch(1).digest]
    assert server.numbered.is_whole


@pytest.mark.req("GRP-09", "GRP-10")
def test_payloads_are_served_by_id_and_by_number() -> None:
    server = serving()
    runs = [batch(1, 2), batch(3), batch(4)]
    settle(server, [arrived(of) for of in runs])
    settle(server, [commit(server, *(run_entry(of, of.counter_first) for of in runs[:2]))])
    by_number = PayloadRequest((), (), ((GROUP, 2, 9),))
    (serve,) = only(SendStored, server.step([Received(CLIENT, by_number)]))
    wanted = ((1, key_of(runs[0])), (3, key_of(runs[1])))
    assert serve == SendStored(CLIENT, wanted, is_one=True)
    by_id = PayloadRequest((run_key(runs[2]), run_key(batch(9)), run_key(runs[0])))
    (serve,) = only(SendStored, server.step([Received(CLIENT, by_id)]))
    assert serve.batches == ((0, key_of(runs[2])), (1, key_of(runs[0])))
    assert serve.is_urgent


def test_a_payload_that_is_not_durable_is_not_served() -> None:
    server = serving()
    server.step([arrived(batch(1))])
    asked = Received(CLIENT, PayloadRequest((run_key(batch(1)),)))
    assert only(SendStored, server.step([asked])) == []


@pytest.mark.req("GRP-23")
def test_a_payload_that_rotted_is_missing_and_nothing_worse() -> None:
    server = serving()
    settle(server, [arrived(batch(1)), arrived(batch(2))])
    settle(server, [commit(server, run_entry(batch(1), 1))])
    assert server.applied == 3
    server.step([Rotted(key_of(batch(1))), Rotted(key_of(batch(2)))])
    assert server.applied == 0
    assert not server.numbered.is_whole
    assert key_of(batch(2)) not in server.unnumbered
    settle(server, [Received(2, Repair(((1, encode_batch(batch(1))),)))])
    assert server.applied == 3


@pytest.mark.req("GRP-23")
def test_a_server_comes_back_with_its_payloads_and_their_numbers() -> None:
    listed = [
        Listed(key_of(of), of.count, of.birth, of.digest, 0, 64) for of in (batch(1), batch(2))
    ]
    columns = columns_of(Listing(listed, [(key_of(batch(1)), 1)]))
    recovery = DataRecovery(101, columns.runs, (), columns.marks)
    server = data_server(recovery=recovery)
    asked = Received(CLIENT, PayloadRequest((), (), ((GROUP, 1, 1),)))
    (serve,) = only(SendStored, server.step([asked]))
    assert serve == SendStored(CLIENT, ((1, key_of(batch(1))),), is_one=True)
    # A server that lacks them has room for all.
    (serve,) = only(SendStored, server.step([Received(2, asked.message)]))
    assert not serve.is_one
    assert answers(server.step([arrived(batch(1))])) == [(AnswerKind.NUMBER, 1)]
    (report,) = reports(server.step([commit(server, *OPENING)]))
    assert report.runs == (
        # What was said outside the digest is not kept; the sender says it again.
        reported(batch(2, confirmed_below=0)),
    )


@pytest.mark.req("GRP-23")
def test_a_server_with_another_disk_than_the_listed_one_asks_to_be_listed() -> None:
    server = data_server(recovery=DataRecovery(999))
    joins = [m for m in sent(server.step([Ticked(0)])) if isinstance(m, Join)]
    assert joins == [Join(1, 999, 1)] * len(joins) != []
    assert [m for m in sent(serving().step([Ticked(0)])) if isinstance(m, Join)] == []


@pytest.mark.req("GRP-27")
def test_a_number_is_of_the_content_that_its_mark_means() -> None:
    """CE-11: two contents came under one id; the right one was fetched and marked, and a crash took
    it, but not its mark."""
    wrong, right = batch(1, text="wrong"), batch(1, text="right")
    listing = Listing([Listed(key_of(wrong), 1, 0, wrong.digest, 0, 64)])
    listing.add_marks(MarkRecord(((*key_of(right), 1),), 3, right.digest[:MARK_BYTES]))
    scan = DataScan(101)
    scan.add(columns_of(listing))
    server = data_server(recovery=scan.recovery())
    assert key_of(right) not in server.numbered
    server.step([commit(server, *OPENING, run_entry(right, 1))])
    assert not server.numbered.is_whole
    assert server.numbered.expects(key_of(right), right.digest) == 1


@pytest.mark.req("GRP-27")
def test_what_the_order_says_of_a_number_counts_more_than_an_old_mark() -> None:
    wrong, right = batch(1, text="wrong"), batch(1, text="right")
    listing = Listing([Listed(key_of(wrong), 1, 0, wrong.digest, 0, 64)], [(key_of(wrong), 1)])
    scan = DataScan(101)
    scan.add(columns_of(listing))
    server = data_server(recovery=scan.recovery())
    assert key_of(wrong) in server.numbered
    server.step([commit(server, *OPENING, run_entry(right, 1))])
    assert server.numbered.expects(key_of(right), right.digest) == 1
