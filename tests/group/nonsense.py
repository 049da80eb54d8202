"""Messages that make no sense: strategies for every control message, read off its own types.

Values come from small pools, most of them close to what the role under test really holds, so that
nonsense gets past the first look: the right epoch with an impossible index, a listed disk with a
count near 2**63, two contents for one id.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from samcast.machine.ports import Received
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.group import AnyControl, Control
from samcast.wire.order import EPOCH_NONE, HASH_NONE, Configuration, Epoch, Server
from tests.group.build import ANN, BOB, CLIENT, CONFIGURATION, NAMED, OWNER, batch

LAST = 2**63 - 1  # the largest number that a decoder lets in
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 40, 1000, 2**32, 2**62, LAST - 1, LAST]
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
            case _:
                return self.blobs


def values(kind: Any, hints: Hints) -> SearchStrategy[Any]:
    """Values of one type, as `msgspec` describes it."""
    match kind:
        case msgspec.inspect.IntType(ge=least):
            return st.sampled_from([number for number in NUMBERS if number >= (least or 0)])
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.StrType():
            return st.sampled_from(["orders", "x" * 100])
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.BytesType():
            return st.sampled_from(hints.bytes_of(kind))
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*(values(item, hints) for item in items))
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(values(item, hints), max_size=3).map(tuple)
        case msgspec.inspect.UnionType(types=kinds):
            return st.one_of(*(values(one, hints) for one in kinds))
        case msgspec.inspect.StructType():
            return structs(kind, hints)
        case _:
            raise NotImplementedError(f"no strategy for {kind}")


def structs(info: msgspec.inspect.StructType, hints: Hints) -> SearchStrategy[Any]:
    """Structs of one class, each field from the pool of its name or of its type."""
    if info.cls is Configuration:
        return st.sampled_from(hints.configurations)
    fields: dict[str, SearchStrategy[Any]] = {}
    for field in info.fields:
        pool = hints.pool(field.name)
        is_plain = not isinstance(field.type, msgspec.inspect.StructType)
        fields[field.name] = (
            st.sampled_from(pool) if pool is not None and is_plain else values(field.type, hints)
        )
    return st.builds(info.cls, **fields)


def of_kind(kind: type[Control], hints: Hints) -> SearchStrategy[Control]:
    """Messages of one kind."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return structs(info, hints)


def arrivals(kinds: tuple[type, ...], hints: Hints) -> SearchStrategy[Received]:
    """Messages from whoever may send them, from other servers, and from a node that is none."""
    controls = [of_kind(kind, hints) for kind in kinds if issubclass(kind, Control)]
    batches = [st.sampled_from(BATCHES)] if Batch in kinds else []
    senders = st.sampled_from([0, 0, 0, 1, 2, 3, 99, CLIENT])
    return st.builds(received, senders, st.one_of(*controls, *batches))


def received(sender: int, message: Control | Batch) -> Received:
    """From this node; 0 is the sequencer of the epoch that the message names, if it names one."""
    epoch: Epoch = getattr(message, "epoch", (0, 1, 0))
    return Received(sender or epoch[1], message)
