"""What connections share: one that is broken keeps nobody else from being heard."""

import asyncio
import socket
from typing import Any

from samcast.runtime.connection import WAITING_BYTES_MAX, Connection, Traffic


class Transport:
    """Takes what is written, unless it was closed by somebody else."""

    def __init__(self, is_closed: bool) -> None:
        self._is_closed = is_closed
        self._end = socket.socket(socket.AF_UNIX)
        self._end.close()
        self.taken: list[bytes] = []

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Nothing to limit."""

    def get_extra_info(self, name: str) -> Any:
        return self._end

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, parts: list[bytes]) -> None:
        if self._is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.taken += parts


async def play() -> tuple[Transport, Transport, Traffic]:
    traffic = Traffic()
    broken, sound = Transport(is_closed=True), Transport(is_closed=False)
    ends = []
    for transport in (broken, sound):
        end = Connection(traffic, lambda c, kind, payload: None, lambda c: None)
        end.connection_made(transport)  # type: ignore[arg-type]
        ends.append(end)
    for _ in range(2):
        for end in ends:
            end.write(b"one", b"two")
        traffic.flush()
    ends[1].write(b"later")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return broken, sound, traffic


def test_others_are_sent_what_is_theirs_though_one_has_been_closed_unnoticed() -> None:
    broken, sound, traffic = asyncio.run(play())
    assert broken.taken == []
    assert sound.taken == [b"one", b"two", b"one", b"two", b"later"]
    assert traffic.bytes_out == 17


async def overload() -> tuple[Transport, Connection]:
    transport = Transport(is_closed=False)
    end = Connection(Traffic(), lambda c, kind, payload: None, lambda c: None)
    end.connection_made(transport)  # type: ignore[arg-type]
    for _ in range(200):
        end.write(bytes(1_000_000))
    end.flush()
    return transport, end


def test_what_is_written_in_one_turn_is_bounded_too() -> None:
    transport, end = asyncio.run(overload())
    assert WAITING_BYTES_MAX <= sum(map(len, transport.taken)) <= WAITING_BYTES_MAX + 1_000_000
    assert end.dropped == 200 - len(transport.taken)
