"""A relay between a client and a node that cuts bytes into small pieces, and resets connections."""

import random
import select
import socket
import struct
import threading
from types import TracebackType

CHOP_BYTES = 700
ABORT = struct.pack("ii", 1, 0)  # linger for nothing: closing sends a reset


class Relay:
    """Passes on what it gets, in pieces, until it is told to reset."""

    def __init__(self, target: tuple[str, int], chance: random.Random) -> None:
        self._target = target
        self._chance = chance
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self._must_reset = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.resets = 0

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> "Relay":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._listener.close()
        self._reset()

    def reset(self) -> None:
        """End all connections in the middle of whatever they carry, soon."""
        self._must_reset.set()

    def _reset(self) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self.resets += 1
            for end in pair:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                end.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            if self._must_reset.is_set():
                self._must_reset.clear()
                self._reset()
            try:
                self._pass_on()
            except (OSError, ValueError):  # One end is gone: both go.
                self._pairs = [p for p in self._pairs if all(end.fileno() >= 0 for end in p)]

    def _pass_on(self) -> None:
        to = {a.fileno(): b for pair in self._pairs for a, b in (pair, pair[::-1])}
        ends = [end for pair in self._pairs for end in pair]
        ready, _, _ = select.select([self._listener, *ends], [], [], 0.05)
        for end in ready:
            if end is self._listener:
                inner, _ = self._listener.accept()
                self._pairs.append((inner, socket.create_connection(self._target)))
                continue
            other = to[end.fileno()]
            data = end.recv(self._chance.randint(1, CHOP_BYTES))
            if not data:
                self._pairs = [p for p in self._pairs if end not in p]
                end.close()
                other.close()
                return
            other.sendall(data)
