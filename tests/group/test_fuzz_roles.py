"""Nonsense from peers, fed to every role in realistic states: it never raises, and never spreads.

Each example is a sequence of messages of the role's own kinds, made from their types, from listed
servers and from strangers, mixed with time that passes and stores that become durable. After each
step: whatever the role says can be decoded by whoever hears it, whatever it stores can be read
back, what it has promised and what it holds as committed never go back, and what it has
acknowledged is on its disk.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.data_server import DataServer
from samcast.group.storage import (
    RewriteOrder,
    Rotted,
    StoreBatch,
    StoreMarks,
    StoreOrder,
    StoreSnapshot,
    StoreVote,
)
from samcast.machine.ports import Effect, Event, Multicast, Received, Role, Send, Store, Ticked
from samcast.machine.ports import Stored as StoredEvent
from samcast.wire.batch import Batch, decode_batch, encode_batch
from samcast.wire.codec import decode, encode
from samcast.wire.control import Control
from samcast.wire.errors import WireError
from samcast.wire.group import CommitAck, Promise, StartReply
from samcast.wire.records import decode_mark, decode_record, decode_vote
from tests.group.build import CONFIGURATION, Draws, OrderDisk, codes, key_of, only, sent
from tests.group.nonsense import BATCHES, IMPOSSIBLE, KINDS, POSSIBLE, Hints, Pick, arrival, values
from tests.group.states import STATES, TINY, Subject

MESSAGE = "message"
TICK = "tick"
SYNC = "sync"
AGAIN = "again"  # the last message comes again, from another peer
SEEDS = 150


def check_effects(effects: list[Effect]) -> None:
    """What a role says and stores is readable."""
    for effect in effects:
        match effect:
            case Send(message=message) | Multicast(message=message):
                assert decode(encode(message)) == message
            case StoreOrder(records=records) | RewriteOrder(records=records):
                for record in records:
                    decode_record(record)
            case StoreVote(record=record):
                decode_vote(record)
            case StoreMarks(record=record):
                decode_mark(record)
            case StoreSnapshot(state=state):
                assert Core.decode(state, TINY).encode() == state
            case StoreBatch(batch=batch):
                assert decode_batch(encode_batch(batch)) == batch
            case _:
                pass


def check_votes(server: CommitServer, disk: OrderDisk, effects: list[Effect]) -> None:
    """A server that died now would come back with all that it has just told others."""
    votes = [m for m in sent(effects) if isinstance(m, CommitAck | StartReply | Promise)]
    if not votes:
        return
    again = CommitServer(server.node, CONFIGURATION, TINY, disk.recovery(), Draws(1))
    for vote in votes:
        if isinstance(vote, Promise):
            assert again.promised >= vote.epoch
        elif isinstance(vote, CommitAck) or vote.is_started:
            length = vote.index if isinstance(vote, CommitAck) else vote.length
            assert again.log_epoch == vote.epoch
            assert not again.unknown_from
            assert again.log.hash_at(length) == server.log.hash_at(length) is not None


def standing(role: Role) -> tuple[object, ...]:
    """What only ever rises."""
    if isinstance(role, CommitServer):
        assert role.log.hash_at(role.core.index) == role.core.hash
        return (role.core.index, role.configuration.number)
    if isinstance(role, DataServer):
        return (role.follower.core.index, role.follower.epoch)
    return ()


class Host:
    """Steps one role and checks it after each step."""

    def __init__(self, subject: Subject) -> None:
        self._role, self._disk = subject.role, subject.disk
        self._now_ms = 10_000
        self._token = 0
        self._last: Received | None = None

    def take(self, thing: Received | str, number: int) -> None:
        before = standing(self._role)
        promised = self._role.promised if isinstance(self._role, CommitServer) else None
        effects = self._role.step(self._events(thing, number))
        for store in only(Store, effects):
            self._token = store.token
        check_effects(effects)
        if isinstance(self._role, CommitServer):
            assert promised is not None
            assert self._role.promised >= promised
            if self._disk is not None:
                self._disk.take(effects)
                check_votes(self._role, self._disk, effects)
        assert standing(self._role) >= before
        self._role.due_ms()

    def _events(self, thing: Received | str, number: int) -> list[Event]:
        if isinstance(thing, Received):
            self._last = thing
            return [thing]
        if thing == TICK:
            self._now_ms += 40 * (1 + number)
            return [Ticked(self._now_ms)]
        if thing == AGAIN and self._last is not None:
            return [Received(1 + number % 3, self._last.message)]
        if self._disk is not None and self._disk.is_waiting:
            return [self._disk.sync()]
        if isinstance(self._role, DataServer) and number % 3 == 0:
            return [Rotted(key_of(BATCHES[number % len(BATCHES)]))]
        return [StoredEvent(self._token)] if self._token else []


def readable(message: Control | Batch) -> bool:
    """What the decoder turns away never reaches a role."""
    with suppress(WireError):
        return decode(encode(message)) is not None
    return False


@cache
def known(make: Callable[[], Subject]) -> tuple[tuple[type, ...], Hints]:
    """The kinds that a role in this state knows, and what it holds."""
    role, hints, _ = make()
    hints.configurations = [*[CONFIGURATION] * 8, *POSSIBLE, *IMPOSSIBLE]
    return tuple(role._handlers), hints  # type: ignore[attr-defined]


def run(make: Callable[[], Subject], length: int, pick: Pick) -> None:
    """One sequence of whatever may happen to a role."""
    kinds, hints = known(make)
    host = Host(make())
    for _ in range(length):
        thing = pick([MESSAGE, MESSAGE, MESSAGE, TICK, SYNC, SYNC, AGAIN])
        if thing == MESSAGE:
            thing = arrival(kinds, hints, pick)
            if not readable(thing.message):
                continue
        host.take(thing, pick(range(20)))


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
@settings(max_examples=10, derandomize=True, deadline=None)
@given(data=st.data())
def test_no_sequence_of_nonsense_stops_a_role_or_takes_back_what_it_holds(
    make: Callable[[], Subject], data: st.DataObject
) -> None:
    """Few, but what is found here is made as short as can be."""
    run(make, data.draw(st.integers(1, 6)), lambda pool: data.draw(st.sampled_from(pool)))


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
def test_many_more_sequences_of_nonsense_do_so_neither(make: Callable[[], Subject]) -> None:
    for seed in range(SEEDS):
        try:
            run(make, 12, Random(seed).choice)
        except BaseException as error:
            error.add_note(f"{make.__name__}, seed {seed}")
            raise


ONE_OF_EACH = st.tuples(*(values(kind, Hints()) for kind in KINDS))


@settings(max_examples=3, derandomize=True, deadline=None)
@given(ONE_OF_EACH)
def test_a_message_of_a_kind_that_a_role_does_not_know_changes_nothing(
    messages: tuple[Control, ...],
) -> None:
    """Whatever arrives at the wrong door is dropped; servers say so with a code."""
    for make in STATES:
        role = make().role
        role.step([])  # whatever is due now is said here
        for message in messages:
            if type(message) in role._handlers:  # type: ignore[attr-defined]
                continue
            before = standing(role)
            effects = role.step([Received(2, message)])
            assert only(Store, effects) == []
            assert standing(role) == before
            if isinstance(role, CommitServer | DataServer):
                assert codes(effects) == ["misdirected"]
