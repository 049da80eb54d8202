"""The one door of every role: events go in, effects come out, and nothing else moves it.

Events are past tense, effects imperative. Durability is an event: what must wait for the disk is
not returned from `step` until `Stored` has come in, so a host can't send too early by mistake.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from samcast.wire.batch import Batch
from samcast.wire.control import Control
from samcast.wire.order import Configuration, Place

NodeId = int


class Channel(IntEnum):
    """Whom a multicast reaches. Logical: several may share one address."""

    GLOBAL = 1  # data servers, commit servers, members, entries
    DATA = 2  # data servers
    COMMIT = 3  # commit servers
    PAYLOAD = 4  # data servers and members: what a sender reaches where there is multicast


class Event(msgspec.Struct, frozen=True, gc=False):
    """What happened."""


class Received(Event, frozen=True, gc=False):
    """A message came in. `sender` is known from the connection, never read from the message."""

    sender: NodeId
    message: Control | Batch


class Ticked(Event, frozen=True, gc=False):
    """Time as the host's monotonic clock has it; first event of every turn."""

    now_ms: int


class Stored(Event, frozen=True, gc=False):
    """Every store of this role with a token up to this one is durable."""

    token: int


class Unreachable(Event, frozen=True, gc=False):
    """The connection to a node was lost, as when its process ends. A hint: nothing is decided by
    it, since the node may be well."""

    node: NodeId


class Reachable(Event, frozen=True, gc=False):
    """There is a connection to a node; what it was sent before may not have reached it."""

    node: NodeId


class Effect(msgspec.Struct, frozen=True, gc=False):
    """What the host shall do."""


class Send(Effect, frozen=True, gc=False):
    """Send to one node; to oneself means to the other roles of this process."""

    to: NodeId
    message: Control | Batch


class Multicast(Effect, frozen=True, gc=False):
    """Send to all of a channel, roles of this process included."""

    channel: Channel
    message: Control | Batch


class Store(Effect, frozen=True, gc=False):
    """What all stores share: the host answers `Stored` once this and all before it are durable."""

    token: int


class Introduce(Effect, frozen=True, gc=False):
    """Connect with servers that aren't of the configuration yet."""

    places: tuple[Place, ...]


class Configured(Effect, frozen=True, gc=False):
    """A configuration is in force that wasn't when this role last said so."""

    configuration: Configuration


class Warn(Effect, frozen=True, gc=False):
    """Somebody else's mistake, or a loss that an operator must hear of; `code` is stable."""

    code: str
    detail: str


class Role(Protocol):
    """A state machine with one door."""

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn, in order."""
        ...

    def due_ms(self) -> int:
        """When the role wants to be stepped at the latest, even if nothing arrives."""
        ...


class Chance(Protocol):
    """Where nonces and jitter come from; the simulator gives a seeded one."""

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        ...


NEVER_MS = 2**62
