"""Runs of one message as they lie in a segment: the same columns, or a clear no."""

from array import array
from random import Random

import pyarrow as arrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from samcast.wire.arrow import arrow_of
from samcast.wire.batch import Batch, Message, columns_from_messages, encode_batch, make_batch
from samcast.wire.errors import WireError
from samcast.wire.segment import encode_record
from samcast.wire.stretch import Stretch, arrow_of_stretch

GENERATION = 7
SENDERS = [b"a" * 16, b"b" * 16, b"c" * 16]
WHO = {5: SENDERS[0], 2: SENDERS[1], 9: SENDERS[2]}  # as some server counts them
CELL = st.binary(max_size=70)
RUN = st.tuples(st.builds(Message, CELL, CELL, CELL), st.sampled_from(list(WHO)))


def made(counter: int, message: Message, sender: bytes) -> Batch:
    return make_batch(
        group=3, sender=sender, incarnation=1, counter_first=counter, count=1, birth=0,
        confirmed_below=1, seen=0, sent_ms=1000 + counter, configuration=1, stage=0,
        columns=columns_from_messages([message]),
    )  # fmt: skip


def stretch_of(runs: list[tuple[Message, int]], on_disk: list[int], skipped: int = 0) -> Stretch:
    """These runs, the first of which has number 41, in a segment in which they lie in another
    order, and others between them."""
    batches = [made(at + 10, message, WHO[who]) for at, (message, who) in enumerate(runs)]
    first = at = 64 * (1 + skipped)
    data, offsets = b"", [0] * len(runs)
    for place in on_disk:
        for kind, body in ((1, b"of others"), (0, encode_batch(batches[place]))):
            offsets[place] = at
            record = encode_record(kind, body, generation=GENERATION, offset=at)
            data, at = data + record, at + len(record)
    listed = sorted({who for _, who in runs})
    by_sender = [
        at for one in listed for at, (_, who) in zip(offsets, runs, strict=True) if who == one
    ]
    return Stretch(
        3, 41, GENERATION, first,
        array("I", [who for _, who in runs]).tobytes(),
        array("Q", range(10, 10 + len(runs))).tobytes(),
        array("I", listed).tobytes(),
        b"".join(WHO[who] for who in listed),
        array("Q", by_sender).tobytes(),
        data,
    )  # fmt: skip


@pytest.mark.req("PIP-01")
@settings(deadline=None)  # The first needs an import.
@given(st.lists(RUN, min_size=1, max_size=12), st.randoms(use_true_random=False), st.integers(0, 3))
def test_what_lies_on_the_disk_becomes_the_columns_of_each_run(
    runs: list[tuple[Message, int]], chance: Random, skipped: int
) -> None:
    on_disk = list(range(len(runs)))
    chance.shuffle(on_disk)
    parts = [
        arrow_of(made(at + 10, message, WHO[who]), 41 + at).drop_columns(["incarnation"])
        for at, (message, who) in enumerate(runs)
    ]
    wanted = arrow.Table.from_batches(parts).combine_chunks()
    found = arrow.Table.from_batches([arrow_of_stretch(stretch_of(runs, on_disk, skipped))])
    found.validate(full=True)
    assert found.schema.types == wanted.schema.types
    assert found.to_pylist() == wanted.to_pylist()


RUNS = [(Message(b"body %d" % at, b"key", b""), who) for at, who in enumerate((5, 2, 5, 9))]
GOOD = stretch_of(RUNS, [1, 0, 2, 3])


@pytest.mark.req("PIP-01")
def test_a_flipped_bit_anywhere_in_a_run_is_found() -> None:
    wanted = arrow_of_stretch(GOOD).to_pylist()
    found = 0
    for at in range(len(GOOD.data)):
        data = bytearray(GOOD.data)
        data[at] ^= 0x10
        try:
            assert arrow_of_stretch(structs.replace(GOOD, data=bytes(data))).to_pylist() == wanted
        except WireError:
            found += 1
    own = sum(len(encode_batch(made(at + 10, m, WHO[who]))) for at, (m, who) in enumerate(RUNS))
    assert found >= own  # What is between them, and what pads them, is nobody's.


def counters(*values: int) -> bytes:
    return array("Q", values).tobytes()


def test_no_record_is_taken_twice() -> None:
    one = stretch_of(RUNS[:1], [0])
    twice = structs.replace(
        one, who=one.who * 2, counters=one.counters * 2, offsets=one.offsets * 2
    )
    with pytest.raises(WireError, match="twice"):
        arrow_of_stretch(twice)


@pytest.mark.parametrize("field", ["sent_ms", "counter_first"])
def test_numbers_that_no_column_holds_are_refused(field: str) -> None:
    payload = bytearray(encode_batch(made(10, Message(b"x"), SENDERS[0])))
    at = {"sent_ms": 64, "counter_first": 24}[field]
    payload[at : at + 8] = (2**63).to_bytes(8, "little")
    good = stretch_of([(Message(b"x"), 5)], [0])
    record = encode_record(0, bytes(payload), generation=GENERATION, offset=good.offset)
    told = counters(2**63) if field == "counter_first" else good.counters
    bad = structs.replace(good, data=record, offsets=counters(good.offset), counters=told)
    with pytest.raises(WireError, match="range"):
        arrow_of_stretch(bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"who": GOOD.who[:-1]},
        {"who": GOOD.who[4:]},
        {"who": b""},
        {"who": b"\xff" * 16},
        {"who": GOOD.who[4:8] + GOOD.who[:4] + GOOD.who[8:]},  # others' runs
        {"listed": GOOD.listed[4:]},
        {"senders": GOOD.senders[:-1]},
        {"senders": b"x" * len(GOOD.senders)},
        {"counters": GOOD.counters[8:]},
        {"counters": counters(10, 11, 12, 14)},
        {"offsets": GOOD.offsets[8:]},
        {"offsets": counters(*[2**63 + 64] * 4)},
        {"offsets": counters(0, 0, 0, 0)},
        {"offsets": counters(*[2**40] * 4)},
        {"offsets": counters(*[GOOD.offset + 1] * 4)},
        {"offsets": GOOD.offsets[8:] + GOOD.offsets[:8]},
        {"offset": GOOD.offset + 64},
        {"offset": 2**62},
        {"offset": 2**63 - 64, "offsets": counters(*[2**63] * 4)},
        {"generation": 2**40},
        {"number_first": 2**64},
        {"who": GOOD.who * 4000, "counters": GOOD.counters * 4000, "offsets": GOOD.offsets * 4000},
        {"generation": GENERATION + 1},
        {"group": 4},
        {"data": b""},
        {"data": GOOD.data[:-64]},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_what_does_not_fit_together_is_refused(bad: dict[str, bytes]) -> None:
    with pytest.raises(WireError):
        arrow_of_stretch(structs.replace(GOOD, **bad))
