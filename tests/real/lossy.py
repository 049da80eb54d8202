"""A node whose multicast loses, doubles and overtakes, and that may be cut off; the process is the
real one. Run as `python -m tests.real.lossy LOSS samcast.cli.main node ...`: that share of the
datagrams that come in is lost, half as many come twice, and as many come some milliseconds late.
Nothing at all is heard from nodes whose ids stand in the file that $SAMCAST_TEST_CUT names.
"""

import asyncio
import contextlib
import os
import random
import sys
from pathlib import Path
from typing import Any

from samcast.client.listener import Listener
from samcast.runtime.connection import Connection
from samcast.runtime.datagrams import Datagrams
from samcast.runtime.mesh import Mesh
from samcast.wire.datagram import DATAGRAM_HEADER_BYTES
from samcast.wire.errors import WireError

CUT = "SAMCAST_TEST_CUT"


def install(loss: float, kind: type[Datagrams] | type[Listener] = Datagrams) -> None:
    """Have all of this process's ears lose so much."""
    chance = random.Random()
    take: Any = kind._take

    def late(ear: Any, data: bytes, place: Any) -> None:
        with contextlib.suppress(WireError):
            take(ear, data, place)

    def lossy(ear: Any, data: bytes, place: Any) -> None:
        drawn = chance.random() / loss if loss else 9
        if drawn < 1:
            return
        if drawn < 2:
            loop = asyncio.get_running_loop()
            loop.call_later(0.02 * chance.random(), late, ear, data, place)
            return
        if drawn < 2.5:
            take(ear, data, place)
        take(ear, data, place)

    kind._take = lossy  # type: ignore[method-assign, assignment]


def install_cut(file: Path) -> None:
    """Hear nothing from the nodes that the file names, by datagram or connection."""
    take, on_frame = Datagrams._take, Mesh._on_frame

    def cut() -> list[str]:
        return file.read_text().split() if file.exists() else []

    def deaf_take(ear: Datagrams, data: bytes, place: Any) -> None:
        node = int.from_bytes(data[6:8], "little") if len(data) >= DATAGRAM_HEADER_BYTES else 0
        if str(node) not in cut():
            take(ear, data, place)

    def deaf_frame(mesh: Mesh, connection: Connection, kind: int, payload: bytes) -> None:
        if str(connection.id) not in cut():
            on_frame(mesh, connection, kind, payload)

    Datagrams._take = deaf_take  # type: ignore[method-assign, assignment]
    Mesh._on_frame = deaf_frame  # type: ignore[method-assign, assignment]


def launcher(loss: float) -> list[str]:
    """What runs such a node."""
    return [sys.executable, "-m", "tests.real.lossy", str(loss), "samcast.cli.main"]


def main() -> None:
    install(float(sys.argv[1]))
    if os.environ.get(CUT):
        install_cut(Path(os.environ[CUT]))
    from samcast.cli.main import main as samcast

    sys.argv = sys.argv[2:]
    samcast()


if __name__ == "__main__":
    main()
