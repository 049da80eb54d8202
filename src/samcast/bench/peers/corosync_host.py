"""One host of corosync: `unshare --mount --uts python -m samcast.bench.peers.corosync_host
FOLDER`. It puts the folder's etc, var and tmp over the machine's (for itself alone), runs the
daemon, joins a group there, and does what lines of its standard input say:

    rate COUNT BYTES WINDOW    seconds until so many messages came back, so many on their way
    one COUNT BYTES            how long each message took, in ms
"""

import ctypes
import json
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

READY_S = 30.0
OK = 1
TRY_AGAIN = 6
AGREED = 2
DISPATCH_ALL = 2
HOSTS = 3


class Name(ctypes.Structure):
    """A group's name, as libcpg takes it."""

    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * 128))


class Part(ctypes.Structure):
    """A piece of a message (struct iovec)."""

    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


DELIVER = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p,
    ctypes.c_size_t,
)  # fmt: skip
CHANGE = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
)  # fmt: skip


class Callbacks(ctypes.Structure):
    """What libcpg calls."""

    _fields_ = (("deliver", DELIVER), ("change", CHANGE))


class Member:
    """A member of the group; it counts what it hears, and who is in."""

    def __init__(self) -> None:
        self._cpg = ctypes.CDLL("libcpg.so.4")
        self._handle = ctypes.c_uint64()
        self._name = Name(8, b"compared")
        self._callbacks = Callbacks(DELIVER(self._on_deliver), CHANGE(self._on_change))
        self.heard = 0
        self.members = 0

    def _on_deliver(self, *_: Any) -> None:
        self.heard += 1

    def _on_change(self, _handle: int, _name: Any, _members: Any, count: int, *_: Any) -> None:
        self.members = count

    def join(self) -> None:
        """As soon as the daemon serves."""
        limit = time.monotonic() + READY_S
        while (
            self._cpg.cpg_initialize(ctypes.byref(self._handle), ctypes.byref(self._callbacks))
            != OK
            or self._cpg.cpg_join(self._handle, ctypes.byref(self._name)) != OK
        ):
            if time.monotonic() > limit:
                raise SystemExit(f"no corosync to join after {READY_S:.0f} s")
            time.sleep(0.1)
        fd = ctypes.c_int()
        self._cpg.cpg_fd_get(self._handle, ctypes.byref(fd))
        self._fd = fd.value

    def hear(self, within_s: float) -> None:
        """What has come, waiting for it so long."""
        if select.select([self._fd], [], [], within_s)[0]:
            self._cpg.cpg_dispatch(self._handle, DISPATCH_ALL)

    def send(self, body: bytes) -> None:
        """One message; while the daemon has no room, hear."""
        part = Part(body, len(body))
        while True:
            said = self._cpg.cpg_mcast_joined(self._handle, AGREED, ctypes.byref(part), 1)
            if said == OK:
                return
            if said != TRY_AGAIN:
                raise SystemExit(f"corosync refused a message of {len(body)} bytes: error {said}")
            self.hear(0.001)

    def rate(self, count: int, size: int, window: int) -> float:
        """Messages, so many on their way."""
        bodies = [(b"%08d" % i).ljust(size, b"x") for i in range(count)]
        first = self.heard
        began = time.perf_counter()
        for i, body in enumerate(bodies):
            while i - (self.heard - first) >= window:
                self.hear(1.0)
            self.send(body)
        while self.heard - first < count:
            self.hear(1.0)
        return time.perf_counter() - began

    def one(self, count: int, size: int) -> list[float]:
        """One message after the other."""
        waits: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            heard = self.heard
            self.send(b"x" * size)
            while self.heard == heard:
                self.hear(1.0)
            waits.append((time.perf_counter() - began) * 1000)
        return waits


def main() -> None:
    own = Path(sys.argv[1])
    socket.sethostname(own.name)
    for place in ("etc", "var", "tmp"):  # tmp last: the folder may be in it
        subprocess.run(["mount", "--bind", own / place, f"/{place}"], check=True)
    daemon = subprocess.Popen(["corosync", "-f"], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        _serve()
    finally:
        daemon.terminate()
        daemon.wait()


def _serve() -> None:
    member = Member()
    member.join()
    limit = time.monotonic() + READY_S
    while member.members < HOSTS:
        if time.monotonic() > limit:
            raise SystemExit(f"{member.members} of {HOSTS} are in after {READY_S:.0f} s")
        member.hear(0.1)
    print(json.dumps("ready"), flush=True)
    while True:
        if not select.select([sys.stdin], [], [], 0)[0]:
            member.hear(0.01)  # what others send
            continue
        line = sys.stdin.readline()
        if not line:
            return
        what, *words = line.split()
        numbers = [int(word) for word in words]
        done = member.rate(*numbers) if what == "rate" else member.one(*numbers)
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
