"""Members as small processes of their own: `python -m tests.real.listening ADDRESS GROUP LOSS`
listens from the first message on and, when a line with a count comes in, reads so many and says in
one line of JSON what it saw. After the line `lose` the next piece of a payload is lost here.
"""

import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import samcast
from samcast.client.engine import Engine
from samcast.client.inbox import Message
from samcast.client.listener import Listener
from samcast.runtime.local_cluster import LocalCluster
from tests.real.lossy import install


class Process:
    """One of them, seen from outside."""

    def __init__(self, cluster: LocalCluster, group: str, loss: float) -> None:
        command = [sys.executable, "-m", "tests.real.listening", cluster.address, group, str(loss)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ready(self) -> None:
        assert self._answer() == "listening"

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        return json.loads(self._child.stdout.readline())

    def say(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def result(self, count: int) -> dict[str, Any]:
        """What it has seen once it has seen so many."""
        self.say(str(count))
        found: dict[str, Any] = self._answer()
        return found

    def stop(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.go_on()
        self._child.kill()
        self._child.communicate()


@contextmanager
def listening(
    cluster: LocalCluster, count: int, loss: float = 0.0, group: str = "members"
) -> Iterator[list[Process]]:
    """So many members, until the block is left."""
    staff = [Process(cluster, group, loss) for _ in range(count)]
    try:
        for member in staff:
            member.ready()
        yield staff
    finally:
        for member in staff:
            member.end()


def lose_one() -> None:
    """The next piece that comes is lost."""
    take = Listener._take

    def losing(ear: Listener, data: bytes, place: Any) -> None:
        if len(data) < LARGE_BYTES:  # a heartbeat, or so
            take(ear, data, place)
            return
        Listener._take = take  # type: ignore[method-assign]

    Listener._take = losing  # type: ignore[method-assign, assignment]


LARGE_BYTES = 1000


class Seen:
    """What a member has seen so far."""

    def __init__(self) -> None:
        self.count = 0
        self.digest = hashlib.sha256()
        self.is_more = threading.Condition()

    def wait_for(self, count: int) -> None:
        with self.is_more:
            self.is_more.wait_for(lambda: self.count >= count)

    def follow(self, messages: Iterator[Message]) -> None:
        for message in messages:
            with self.is_more:
                self.count += 1
                self.digest.update(b"%d %s\n" % (message.number, message.body))
                self.is_more.notify_all()


def becomes_live(engine: Engine) -> bool:
    for _ in range(200):
        if engine.is_live:
            return True
        threading.Event().wait(0.05)
    return False


def main() -> None:
    address, group, loss = sys.argv[1:]
    install(float(loss), Listener)
    seen = Seen()
    with samcast.connect(address, multicast=True) as client:
        engine = client.engine
        following = threading.Thread(
            target=seen.follow, args=(client.group(group).read(1),), daemon=True
        )
        following.start()
        seen.wait_for(1)
        becomes_live(engine)
        print(json.dumps("listening"), flush=True)
        for line in sys.stdin:
            if line.strip() == "lose":
                lose_one()
                continue
            seen.wait_for(int(line))
            said = {"count": seen.count, "digest": seen.digest.hexdigest()}
            is_live = becomes_live(engine)
            print(json.dumps({**said, "live": is_live, **engine.listened}), flush=True)


if __name__ == "__main__":
    main()
