"""The outbox by hand: what is sent while a batch is under way leaves as one batch behind it."""

import threading

import pytest

from samcast.client.outbox import BATCH_BYTES, BATCH_MESSAGES, CLIENT_THREAD, Outbox
from samcast.errors import RefusedError, WaitTimeoutError
from samcast.group.sender import Confirmed, Sender, Submitted
from samcast.wire.batch import cells_of, make_batch
from samcast.wire.blocked import Reason
from tests.group.build import CONFIGURATION, GROUP, Draws
from tests.group.test_sender import SETTINGS


class Sent:
    """An outbox whose batches go no further than here."""

    def __init__(self) -> None:
        sender = Sender(60, CONFIGURATION, SETTINGS, Draws(6), GROUP)
        self.outbox = Outbox(sender, lambda call: call())
        self.batches: list[Submitted] = []
        self.outbox.post = self.batches.append

    def confirm(self, number_first: int) -> None:
        """The oldest batch that is under way has its numbers."""
        token = self.batches[-self.outbox.under_way].token
        self.outbox.on_effect(Confirmed(token, number_first))

    def messages(self, at: int) -> list[tuple[bytes, ...]]:
        """Of one batch: bodies, keys and headers."""
        one = self.batches[at]
        batch = make_batch(
            group=GROUP, sender=b"s" * 16, incarnation=1, counter_first=1, count=one.count,
            birth=0, confirmed_below=0, seen=0, sent_ms=0, configuration=0, stage=0,
            columns=one.columns,
        )  # fmt: skip
        return list(zip(*cells_of(batch), strict=True))


def test_what_is_sent_while_a_batch_is_under_way_leaves_together_behind_it() -> None:
    sent = Sent()
    alone = sent.outbox.put(b"alone")
    many = sent.outbox.put_many([b"a", b"b"], 2)
    keyed = sent.outbox.put(b"c", b"key")
    more = sent.outbox.put_many([b"d", b"e"], 2)
    assert [one.count for one in sent.batches] == [1]

    sent.confirm(7)

    assert alone.number(0) == 7
    assert sent.messages(1) == [
        (b"a", b"", b""), (b"b", b"", b""), (b"c", b"key", b""), (b"d", b"", b""), (b"e", b"", b""),
    ]  # fmt: skip
    sent.confirm(20)
    assert [one.number(0) for one in (many, keyed, more)] == [21, 22, 24]
    assert sent.outbox.unconfirmed == 0


def test_a_full_batch_leaves_though_others_are_under_way() -> None:
    sent = Sent()
    third = b"x" * (BATCH_BYTES // 3)
    for at in range(8):
        sent.outbox.put_many([third + b"%d" % at], len(third) + 1)

    assert [one.count for one in sent.batches] == [1, 2, 2, 2]  # and one waits
    assert all(len(one.columns) <= BATCH_BYTES + 100 for one in sent.batches)


def test_a_batch_has_so_many_messages_at_most() -> None:
    sent = Sent()
    sent.outbox.put(b"alone")
    sent.outbox.put_many([b""] * (BATCH_MESSAGES - 1), 0)
    sent.outbox.put_many([b""] * 2, 0)
    assert [one.count for one in sent.batches] == [1, BATCH_MESSAGES - 1]

    sent.outbox.put_many([b""] * (BATCH_MESSAGES - 2), 0)
    assert [one.count for one in sent.batches] == [1, BATCH_MESSAGES - 1, BATCH_MESSAGES]


def test_what_is_on_its_way_is_never_out_of_sight() -> None:
    """Who flushes or closes, at whatever moment, must find it."""
    sent = Sent()
    lock, seen = threading.Lock(), list[bool]()

    class Looking:
        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            outbox = sent.outbox
            seen.append(bool(outbox._open.bodies or outbox._ready or outbox._under_way))
            lock.release()

    sent.outbox._lock = Looking()  # type: ignore[assignment]
    sent.outbox.put(b"first")
    sent.outbox.put(b"second")
    sent.confirm(1)
    assert len(sent.batches) == 2
    assert all(seen)
    sent.confirm(2)
    assert not seen[-1]


def test_a_batch_that_can_not_be_sent_fails_alone() -> None:
    sent = Sent()
    large = bytes(17 * 1024 * 1024)
    failed = sent.outbox.put(b"x", large, large)
    with pytest.raises(RefusedError, match="batch-bytes"):
        failed.number(0)
    sent.outbox.put(b"next")
    assert [one.count for one in sent.batches] == [1]


def test_what_is_large_goes_as_it_is_and_in_its_place() -> None:
    sent = Sent()
    sent.outbox.put(b"first")
    sent.outbox.put_many([b"waits"], 5)
    large = sent.outbox.put_many([b"x" * BATCH_BYTES, b"y"], BATCH_BYTES + 1)
    assert [one.count for one in sent.batches] == [1, 1, 2]
    sent.outbox.put_many([b"last"], 4)

    assert [one[0] for one in sent.messages(1)] == [b"waits"]
    sent.confirm(1)
    sent.confirm(2)
    assert [one.count for one in sent.batches] == [1, 1, 2]
    sent.confirm(3)
    assert large.number(0) == 4
    assert [one[0] for one in sent.messages(3)] == [b"last"]


@pytest.mark.parametrize(
    ("blocked", "said"),
    [
        ((Reason.CLIENT_RUNS, 7), "blocked: 7 batches of this client"),
        ((Reason.UNKNOWN_GROUP, 0), "blocked: the cluster knows no such group"),
        ((77, 5), "blocked: reason 77, bound 5"),
    ],
)
def test_who_waits_in_vain_hears_what_stands_in_the_way(
    blocked: tuple[int, int], said: str
) -> None:
    sent = Sent()
    receipt = sent.outbox.put(b"a")
    sent.outbox._sender.blocked = blocked
    with pytest.raises(WaitTimeoutError, match=said):
        receipt.number(0)
    with pytest.raises(WaitTimeoutError, match=said):
        sent.outbox.flush(0)


def test_who_flushes_waits_for_what_was_sent_by_then_and_not_for_what_others_send_on() -> None:
    sent = Sent()
    sent.outbox.put(b"mine")
    flushed = threading.Event()

    def flush() -> None:
        sent.outbox.flush()
        flushed.set()

    flusher = threading.Thread(target=flush, daemon=True)
    flusher.start()
    for number in range(1, 1000):  # Somebody else always has something under way.
        sent.outbox.put(b"theirs")
        sent.confirm(number)
        if flushed.wait(0.01):
            break
    assert flushed.is_set()
    assert sent.outbox.unconfirmed


def test_a_callback_that_would_wait_for_its_own_client_hears_so() -> None:
    sent = Sent()
    receipt, heard = sent.outbox.put(b"a"), list[str]()
    other = sent.outbox.put(b"b")

    def wait() -> None:
        for call in (lambda: sent.outbox.flush(1), lambda: other.number(1)):
            with pytest.raises(RefusedError, match="another thread") as refused:
                call()
            heard.append(str(refused.value))

    receipt.when_done(wait)
    loop = threading.Thread(target=sent.confirm, args=(7,), name=CLIENT_THREAD)
    loop.start()
    loop.join()
    assert len(heard) == 2
