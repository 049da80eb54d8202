"""Messages that make no sense: every kind of control message, made from its own types.

Values come from small pools, most of them close to what the role under test really holds, so that
nonsense gets past the first look: the right epoch with an impossible index, a listed disk with a
count near 2**63, two contents for one id.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from samcast.machine.ports import Received
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.control import Control
from samcast.wire.group import AnyControl
from samcast.wire.order import EPOCH_NONE, HASH_NONE, Configuration, Epoch, Server
from tests.group.build import ANN, BOB, CLIENT, CONFIGURATION, NAMED, OWNER, batch

LAST = 2**63 - 1  # the largest number that a decoder lets in
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 40, 1000, 2**32, 2**62, LAST - 1, LAST]
Pick = Callable[[Sequence[Any]], Any]
KINDS: tuple[type[Control], ...] = AnyControl.__args__
EPOCHS_OF_NOBODY: list[Epoch] = [
    EPOCH_NONE,
    (0, 2, 5),
    (1, 1, 1),
    (2, 2, 5),
    (2, 99, 5),
    (2**32, 3, 5),
    (LAST, 2, LAST),
]
STAGES = [batch(1, 2, sender=OWNER, stage=stage, text=f"s{stage}") for stage in (1, 2)]
BATCHES = [
    batch(1, 2),
    batch(3),
    batch(1, 2, text="other"),
    batch(2, 2, text="overlap"),
    batch(1, sender=BOB, birth=LAST),
    batch(4, sender=BOB),
    batch(1, sender=NAMED),
    batch(1, group=9),
    batch(1, group=0),
    batch(LAST, text="last"),
    *STAGES,
]
IMPOSSIBLE = [  # what no operator could have made: quorums that don't meet, nobody, everybody twice
    Configuration(2, (), 0, 0, 0),
    Configuration(2, CONFIGURATION.servers, 0, 0, 0),
    Configuration(2, CONFIGURATION.servers[1:], 9, 1, 9),
    Configuration(2, (*CONFIGURATION.servers, *CONFIGURATION.servers), 2, 2, 2),
    Configuration(LAST, (Server(1, 101, 0),), LAST, LAST, LAST),
]


POSSIBLE = [  # what may well be the next one
    Configuration(2, CONFIGURATION.servers, 2, 2, 2),
    Configuration(2, (*CONFIGURATION.servers[:2], Server(3, 333, 3)), 2, 2, 2),
    Configuration(3, (Server(1, 111, 3), *CONFIGURATION.servers[1:]), 3, 1, 2),
]


class Hints:
    """What the role under test holds, so that nonsense can come close to it."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = [*EPOCHS_OF_NOBODY]
        self.hashes = [HASH_NONE, b"\x01" * 32]
        self.configurations = [CONFIGURATION]
        self.blobs = [b"", b"\xc1", b"\x00" * 90, *map(encode_batch, BATCHES)]
        self.nonces = [0, 1, LAST]
        self.indexes = [*range(8), 9, 40, LAST]  # the log of a test ends near 7

    def pool(self, name: str) -> list[Any] | None:
        """Values for a field of this name, where any number will not do."""
        pools: dict[str, list[Any]] = {
            "epoch": self.epochs,
            "promised": self.epochs,
            "log_epoch": self.epochs,
            "uuid": [101, 102, 103, 0, LAST],
            "nonce": self.nonces,
            "configuration": [1, 1, 1, 0, 2, LAST],
            "name": ["orders", "other"],
            "group": [1, 1, 1, 0, 2, 9, LAST],
            "scope": [1, 1, 0, 2, LAST],
            "incarnation": [1, 1, 1, 0, 2, 2**32, LAST],
            "count": [1, 1, 2, 0, LAST],
            "stage": [0, 0, 1, 2, LAST],
            **dict.fromkeys(["index_first", "index", "base", "length"], self.indexes),
            **dict.fromkeys(["committed", "low_water", "unknown_from"], self.indexes),
        }
        return pools.get(name)

    def bytes_of(self, kind: msgspec.inspect.BytesType) -> list[bytes]:
        """Senders, digests, hashes and payloads are told apart by their length."""
        match kind.min_length, kind.max_length:
            case 16, 16:
                return [ANN, BOB, NAMED, OWNER, bytes(16)]
            case 16, _:
                return [*(of.digest for of in BATCHES), bytes(16)]
            case 32, _:
                return self.hashes
            case _, 32:
                return [b"", *self.hashes]
            case _:
                return self.blobs


# One value after the other, each picked by whoever wants them: hypothesis, or a seed.


def made(kind: Any, hints: Hints, pick: Pick) -> Any:  # noqa: C901 - a branch per kind of type
    """A value of one type, as `msgspec` describes it."""
    match kind:
        case msgspec.inspect.IntType(ge=least, le=most):
            known = [n for n in NUMBERS if n >= (least or 0) and n <= (most or LAST)]
            return pick(known)
        case msgspec.inspect.BoolType():
            return pick([False, True])
        case msgspec.inspect.StrType():
            return pick(["orders", "x" * 100])
        case msgspec.inspect.EnumType(cls=cls):
            return pick(list(cls))
        case msgspec.inspect.BytesType():
            return pick(hints.bytes_of(kind))
        case msgspec.inspect.TupleType(item_types=items):
            return tuple(made(item, hints, pick) for item in items)
        case msgspec.inspect.VarTupleType(item_type=item):
            return tuple(made(item, hints, pick) for _ in range(pick([0, 1, 1, 2, 3])))
        case msgspec.inspect.UnionType(types=kinds):
            return made(pick(kinds), hints, pick)
        case msgspec.inspect.StructType():
            return struct(kind, hints, pick)
        case msgspec.inspect.NoneType():
            return None
        case _:
            raise NotImplementedError(f"no values of {kind}")


def struct(info: msgspec.inspect.StructType, hints: Hints, pick: Pick) -> Any:
    """A struct, each field from the pool of its name or of its type."""
    if info.cls is Configuration:
        return pick(hints.configurations)
    fields: list[Any] = []
    for field in info.fields:
        is_plain = not isinstance(field.type, msgspec.inspect.StructType)
        pool = hints.pool(field.name) if is_plain else None
        fields.append(made(field.type, hints, pick) if pool is None else pick(pool))
    return info.cls(*fields)


INFO = {kind: msgspec.inspect.type_info(kind) for kind in KINDS}
SENDERS = [0, 0, 0, 1, 2, 3, 99, CLIENT]  # 0: whoever may say so


def arrival(kinds: tuple[type, ...], hints: Hints, pick: Pick) -> Received:
    """A message from whoever may send it, from another server, or from a node that is none."""
    kind, sender = pick(kinds), pick(SENDERS)
    message = pick(BATCHES) if kind is Batch else made(INFO[kind], hints, pick)
    epoch: Epoch = getattr(message, "epoch", (0, 1, 0))
    return Received(sender or epoch[1], message)


@st.composite
def values(draw: st.DrawFn, kind: Any, hints: Hints) -> Any:
    """Any values of a type."""
    return made(msgspec.inspect.type_info(kind), hints, lambda pool: draw(st.sampled_from(pool)))


@st.composite
def arrivals(draw: st.DrawFn, kinds: tuple[type, ...], hints: Hints) -> Received:
    """Any messages of these kinds."""
    return arrival(kinds, hints, lambda pool: draw(st.sampled_from(pool)))
