"""One msgpack value as many small pieces of bytes, which together are what encoding it at once
gives. So something large can be encoded a little at a time.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode


class Many:
    """A list whose items are made when their turn comes."""

    __slots__ = ("count", "items")

    def __init__(self, count: int, items: Iterable[Any]) -> None:
        self.count = count
        self.items = items


class Parts(tuple[Any, ...]):
    """A tuple that is encoded item by item, since there are `Many` among them."""

    __slots__ = ()


def listed(count: int, items: Iterable[Any]) -> list[Any]:
    """In the place of `Many`: the same items at once."""
    return list(items)


def in_pieces(value: Any) -> Iterator[bytes]:
    """The bytes of a value, cut wherever it has `Many` or `Parts`."""
    if type(value) is Many:
        yield _header(value.count)
        for item in value.items:
            if type(item) is Parts:
                yield from in_pieces(item)
            else:
                yield _encode(item)
    elif type(value) is Parts:
        yield _header(len(value))
        for item in value:
            yield from in_pieces(item)
    else:
        yield _encode(value)


def _header(count: int) -> bytes:
    """Of a msgpack array, in its shortest form."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 2**16:
        return b"\xdc" + count.to_bytes(2)
    return b"\xdd" + count.to_bytes(4)
