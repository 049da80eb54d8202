"""Two lives of one node: a copy of its folder that was started beside it, one process started
twice on machines that share a folder. Only one of them may speak under its id: the one whose disk
is listed, and of two with equal disks whoever came first, as long as it answers. That there are
two is an alarm wherever it is seen.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from samcast.limits import NODE_MAX
from samcast.machine.ports import NodeId
from samcast.runtime.connection import Connection
from samcast.runtime.directory import Directory
from samcast.wire.session import Hello, Ping, Rival, Welcome, encode_session

ANSWER_S = 1.0  # whoever speaks for a node has so long to show that it lives
PAUSE_S = 60.0  # between two lines about one node; and so long it is shown as trouble
SAID_MAX = 300  # characters of what a peer says of itself
TWO_LIVES = "session-two-lives"


class Challenge(msgspec.Struct):
    """The first is asked whether it lives; the second waits for that."""

    node: NodeId
    first: Connection
    second: Connection
    accept: Callable[[], None]
    nonce: int
    timer: asyncio.TimerHandle


class Lives:
    """Whom this node believes, and what it has seen of others."""

    def __init__(self, own: NodeId, directory: Directory, say: Callable[..., None]) -> None:
        self.uuid = 0  # of our disk, once that is open
        self.process = 1 + secrets.randbelow(2**62)  # nobody else's, not even a later life's
        self.where = f"process {os.getpid()} on {socket.gethostname()}"
        self._own = own
        self._directory = directory
        self._say = say
        self._challenges: dict[NodeId, Challenge] = {}
        self._seen: dict[NodeId, tuple[float, dict[str, Any]]] = {}
        self._said_s: dict[NodeId, float] = {}

    # who may speak

    def is_other(self, first: Connection | None, second: Connection) -> bool:
        """Whether two connections are of two processes, and not one that has dialed again."""
        if first is None or first is second or not first.is_open:
            return False
        return bool(first.process and second.process) and first.process != second.process

    def _is_listed(self, node: NodeId, connection: Connection) -> bool:
        servers = self._directory.configuration.servers
        return any(s.node == node and s.uuid == connection.uuid for s in servers)

    def outranks(self, node: NodeId, second: Connection, first: Connection) -> bool:
        """Whether who comes second is the one with the listed disk."""
        return self._is_listed(node, second) and not self._is_listed(node, first)

    def challenge(
        self, node: NodeId, first: Connection, second: Connection, accept: Callable[[], None]
    ) -> None:
        """Refuse the second if the first answers, else accept it."""
        if node in self._challenges:
            second.refuse(TWO_LIVES, f"whether node {node} lives is being found out; come again")
            return
        nonce = 1 + secrets.randbelow(2**62)
        timer = asyncio.get_running_loop().call_later(ANSWER_S, self._end, node)
        self._challenges[node] = Challenge(node, first, second, accept, nonce, timer)
        first.write(encode_session(Ping(nonce)))

    def _end(self, node: NodeId) -> None:
        """The first is gone, or as good as gone."""
        challenge = self._challenges.pop(node, None)
        if challenge is not None:
            challenge.timer.cancel()
            if challenge.second.is_open:
                challenge.accept()

    def on_lost(self, connection: Connection) -> None:
        """A connection is over."""
        for challenge in list(self._challenges.values()):
            if connection is challenge.first:
                self._end(challenge.node)

    def on_session(self, connection: Connection, message: Ping | Rival) -> None:
        """An answer, or a question, whether somebody lives; or somebody tells of another life."""
        if isinstance(message, Rival):
            if connection.id <= NODE_MAX:
                self._on_told(message.text)
        elif not self._on_answer(connection, message.nonce):
            connection.write(encode_session(message))

    def _on_answer(self, connection: Connection, nonce: int) -> bool:
        for challenge in self._challenges.values():
            if challenge.first is connection and challenge.nonce == nonce:
                del self._challenges[challenge.node]
                challenge.timer.cancel()
                self.refuse(challenge.node, connection, challenge.second)
                return True
        return False

    # the alarm

    def refuse(self, node: NodeId, first: Connection, second: Connection) -> None:
        """Turn away who came second; all three hear of it, and our people."""
        name = self._directory.name_of(node)
        facts: dict[str, Any] = {
            "node": node, "name": name,
            "first": f"{first.peer_name()} ({first.where})", "first_disk": first.uuid,
            "second": f"{second.peer_name()} ({second.where})", "second_disk": second.uuid,
        }  # fmt: skip
        self._alarm(facts)
        if first.process:
            first.write(encode_session(Rival(msgspec.json.encode(facts).decode())))
        second.refuse(
            TWO_LIVES,
            f"{facts['first']} speaks for {name} and answers. Stop this process if it is a mistake;"
            f" if it is the one to go on, stop that one, then give `samcast node admit {name}`",
        )

    def _on_told(self, text: str) -> None:
        """Somebody else speaks under our id."""
        try:
            facts = msgspec.json.decode(text, type=dict[str, str | int])
        except msgspec.DecodeError:
            return
        known = ("first", "first_disk", "second", "second_disk")
        if all(key in facts for key in known):
            name = self._directory.name_of(self._own)
            told = {key: facts[key] for key in known}
            self._alarm({"node": self._own, "name": name, **told})

    def _alarm(self, facts: dict[str, Any]) -> None:
        node, now = facts["node"], time.monotonic()
        facts = {k: v[:SAID_MAX] if isinstance(v, str) else v for k, v in facts.items()}
        self._seen[node] = (now, facts)
        if now - self._said_s.get(node, -PAUSE_S) >= PAUSE_S:
            self._said_s[node] = now
            self._say("two-lives", f"ALARM: {sentence(facts)}", **facts)

    def seen(self) -> list[dict[str, Any]]:
        """Nodes of which there were two just now."""
        since = time.monotonic() - PAUSE_S
        return [facts for at, facts in self._seen.values() if at >= since]


def note_life(connection: Connection, said: Hello | Welcome) -> None:
    """Which life of a node is at the other end."""
    connection.uuid, connection.process = said.uuid, said.process
    connection.where = said.where[:SAID_MAX]


def sentence(facts: dict[str, Any]) -> str:
    """What there is, and what to do about it."""
    is_one_disk = facts["first_disk"] == facts["second_disk"]
    disks = (
        f"both say that they have disk {facts['first_disk']}"
        if is_one_disk
        else f"with disk {facts['first_disk']}; the other has disk {facts['second_disk']}"
    )
    return (
        f"two processes run as {facts['name']}: {facts['first']} serves, and {facts['second']} was"
        f" refused ({disks}). Stop the one that is a mistake, as a rule a copy of the node's"
        f" folder; if the one that was refused is to go on, stop the first, then give"
        f" `samcast node admit {facts['name']}`"
    )
