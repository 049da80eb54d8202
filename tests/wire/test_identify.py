"""A stored batch is told by its header and its bytes alone."""

from samcast.wire.batch import columns_from_cells, encode_batch, identify, make_batch


def test_a_stored_batch_is_known_without_a_look_at_its_columns() -> None:
    made = make_batch(
        group=3, sender=b"s" * 16, incarnation=2, counter_first=7, count=2, birth=5,
        confirmed_below=1, seen=4, sent_ms=9, configuration=1, stage=6,
        columns=columns_from_cells([b"one", b"two"]),
    )  # fmt: skip
    key = (3, b"s" * 16, 2, 7, 6)
    assert identify(encode_batch(made)) == (key, 2, 5, made.digest)
