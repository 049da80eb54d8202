"""A node whose multicast loses, doubles and overtakes; the process is the real one. Run as
`python -m tests.real.lossy LOSS samcast.cli.main node ...`: that share of the datagrams that come
in is lost, half as many come twice, and as many come some milliseconds late.
"""

import asyncio
import contextlib
import random
import sys
from typing import Any

from samcast.runtime.datagrams import Datagrams
from samcast.wire.errors import WireError


def install(loss: float) -> None:
    chance = random.Random()
    take = Datagrams._take

    def late(edge: Datagrams, data: bytes, place: Any) -> None:
        with contextlib.suppress(WireError):
            take(edge, data, place)

    def lossy(edge: Datagrams, data: bytes, place: Any) -> None:
        drawn = chance.random() / loss if loss else 9
        if drawn < 1:
            return
        if drawn < 2:
            loop = asyncio.get_running_loop()
            loop.call_later(0.02 * chance.random(), late, edge, data, place)
            return
        if drawn < 2.5:
            take(edge, data, place)
        take(edge, data, place)

    Datagrams._take = lossy  # type: ignore[method-assign, assignment]


def launcher(loss: float) -> list[str]:
    """What runs such a node."""
    return [sys.executable, "-m", "tests.real.lossy", str(loss), "samcast.cli.main"]


def main() -> None:
    install(float(sys.argv[1]))
    from samcast.cli.main import main as samcast

    sys.argv = sys.argv[2:]
    samcast()


if __name__ == "__main__":
    main()
