"""What travels on a connection besides the roles' own messages: who speaks, and to whom.

Every frame of a control message or a batch begins with a route of 16 bytes: source and target. A
client doesn't know its own id, and what it says about the source is not believed. A target is a
node, a client (whose id names its node), or a channel.
"""

import struct

import msgspec

from samcast.limits import BATCH_COLUMNS_BYTES_MAX, NODE_MAX
from samcast.wire.errors import WireError
from samcast.wire.frame import encode_frame
from samcast.wire.order import Configuration, Natural, Record

PROTOCOL = 1
REMOVED = "session-removed"  # the code by which a node that was removed is told so
KIND_SESSION = 3
KIND_DATAGRAM = 4  # a question of a client that listens, or a piece for it, with a route before
ROUTE_BYTES = 16
CHANNEL_BASE = 2**63  # targets from here on are channels
SESSION_BYTES_MAX = BATCH_COLUMNS_BYTES_MAX

_ROUTE = struct.Struct("<QQ")
_CLIENT_MASK = 2**40 - 1
_CLIENT_SHIFT = 40  # a client's id: its node, then a number that this node uses once


class Peer(Record, frozen=True, array_like=True):
    """A node of the cluster, as clients need to know it."""

    node: Natural
    name: str
    host: str
    port: Natural


class Hello(Record, frozen=True, array_like=True, tag=1):
    """First thing that whoever connects says. `node` is 0 for a client."""

    protocol: Natural
    cluster: str
    node: Natural = 0
    digest: str = ""  # of the cluster's configuration file; nodes must agree
    settings: tuple[tuple[str, str], ...] = ()  # so that a mismatch can be named
    life: Natural = 0  # of the node's datagrams, where there is multicast
    uuid: Natural = 0  # of the node's disk
    process: Natural = 0  # tells two processes of one node apart; 0: not known
    where: str = ""  # that process, for people


class Welcome(Record, frozen=True, array_like=True, tag=2):
    """The answer: who you are here, and whom else you may talk to."""

    id: Natural
    node: Natural
    cluster: str
    configuration: Configuration
    peers: tuple[Peer, ...]
    life: Natural = 0  # as in `Hello`
    origin: str = ""  # tells clusters of one name apart
    uuid: Natural = 0  # these as in `Hello`
    process: Natural = 0
    where: str = ""


class Refused(Record, frozen=True, array_like=True, tag=3):
    """The connection ends, and why."""

    code: str
    detail: str


class StatusRequest(Record, frozen=True, array_like=True, tag=4):
    """How are you?"""


class Status(Record, frozen=True, array_like=True, tag=5):
    """The answer, as JSON, since it is for people and their tools and grows with every version."""

    text: bytes


class Ping(Record, frozen=True, array_like=True, tag=6):
    """Are you there? Answered by the same."""

    nonce: Natural


class TraceRequest(Record, frozen=True, array_like=True, tag=7):
    """What happened to this message at your node? Answered by a `Status`."""

    group: Natural
    number: Natural


class MulticastRequest(Record, frozen=True, array_like=True, tag=8):
    """A client wants to listen: where, and to whom? Answered now, and whenever that changes."""


class MulticastPlace(Record, frozen=True, array_like=True, tag=9):
    """The answer; there are no lanes where there is no multicast."""

    lanes: tuple[tuple[str, Natural, Natural], ...] = ()  # group, port, cluster as datagrams say it
    lives: tuple[tuple[Natural, Natural], ...] = ()  # of nodes


class Changed(Record, frozen=True, array_like=True, tag=10):
    """Node -> whoever is connected: this is who the nodes are from now on."""

    configuration: Configuration
    peers: tuple[Peer, ...]


class PlanRequest(Record, frozen=True, array_like=True, tag=11):
    """How did the cluster begin? Answered by a `Status` with a cluster file."""


class Rival(Record, frozen=True, array_like=True, tag=12):
    """Node -> node: another process speaks under your id and was refused; JSON, for people."""

    text: str


AnySession = (
    Hello
    | Welcome
    | Refused
    | StatusRequest
    | Status
    | Ping
    | TraceRequest
    | MulticastRequest
    | MulticastPlace
    | Changed
    | PlanRequest
    | Rival
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnySession).decode


def encode_session(message: AnySession) -> bytes:
    """The frame of a session message."""
    return encode_frame(KIND_SESSION, _encode(message))


def decode_session(payload: bytes) -> AnySession:
    """The message, or a `WireError`."""
    try:
        message: AnySession = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("session-malformed", f"not a session message we know: {error}") from None
    return message


def client_id(node: int, number: int) -> int:
    """The id of a client of a node."""
    return (node << _CLIENT_SHIFT) | (number & _CLIENT_MASK)


def node_of(target: int) -> int:
    """The node that a target is at: itself, or the one that a client is connected to."""
    return target >> _CLIENT_SHIFT if target > NODE_MAX else target


def encode_route(source: int, target: int) -> bytes:
    """The beginning of a frame's payload."""
    return _ROUTE.pack(source, target)


def decode_route(payload: bytes) -> tuple[int, int]:
    """Source and target of a frame's payload."""
    if len(payload) < ROUTE_BYTES:
        raise WireError("route-truncated", f"{len(payload)} bytes are less than a route of 16")
    route: tuple[int, int] = _ROUTE.unpack_from(payload)
    return route
