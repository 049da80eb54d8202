"""Short runs put together: the same columns as of each of them."""

import pyarrow as arrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from samcast.wire.arrow import arrow_of
from samcast.wire.batch import Batch, Message, columns_from_messages, encode_batch, make_batch
from samcast.wire.errors import WireError
from samcast.wire.rows import arrow_of_rows, count_of, gather

CELL = st.binary(max_size=5)
MESSAGES = st.lists(st.builds(Message, CELL, CELL, CELL), min_size=1, max_size=4)
PLAIN = st.builds(lambda body: [Message(body)], CELL)
RUN = st.tuples(
    st.one_of(PLAIN, MESSAGES), st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 2)
)


def made(at: int, messages: list[Message], sender: bytes, stage: int) -> Batch:
    return make_batch(
        group=3, sender=sender, incarnation=1, counter_first=at + 10, count=len(messages), birth=0,
        confirmed_below=1, seen=0, sent_ms=1000 + at, configuration=1, stage=stage,
        columns=columns_from_messages(messages),
    )  # fmt: skip


@pytest.mark.req("PIP-01")
@settings(deadline=None)  # The first needs an import.
@given(st.lists(RUN, min_size=1, max_size=8))
def test_rows_put_together_are_those_of_each_run(
    runs: list[tuple[list[Message], bytes, int]],
) -> None:
    batches = [made(at, *run) for at, run in enumerate(runs)]
    rows = gather(3, 41, [encode_batch(batch) for batch in batches])
    number, parts = 41, []
    for batch in batches:
        parts.append(arrow_of(batch, number).drop_columns(["incarnation"]))
        number += batch.count
    assert count_of(rows) == number - 41
    wanted = arrow.Table.from_batches(parts).combine_chunks()
    found = arrow.Table.from_batches([arrow_of_rows(rows)])
    found.validate(full=True)
    assert found.to_pylist() == wanted.to_pylist()


GOOD = gather(3, 1, [encode_batch(made(at, [Message(b"x")], b"a" * 16, 0)) for at in range(3)])


@pytest.mark.parametrize(
    "bad",
    [
        {"counts": GOOD.counts[:-1]},
        {"counts": GOOD.counts[4:]},
        {"counts": bytes(4) + GOOD.counts[4:]},
        {"counts": b"\xff" * 12},
        {"counters": GOOD.counters + b"x"},
        {"counters": GOOD.counters[:-1]},
        {"sent_ms": b""},
        {"stages": b""},
        {"who": b"\x01" + GOOD.who[1:]},
        {"senders": GOOD.senders[1:]},
        {"columns": b""},
        {"columns": GOOD.columns + bytes(8)},
        {"columns": GOOD.columns[:20] + b"\xff" + GOOD.columns[21:]},
    ],
)
def test_rows_that_do_not_fit_together_are_refused(bad: dict[str, bytes]) -> None:
    assert count_of(GOOD) == 3
    with pytest.raises(WireError):
        count_of(structs.replace(GOOD, **bad))
