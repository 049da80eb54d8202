"""How a server with a new disk comes back: it asks until a committed configuration lists that
disk.
"""

from typing import TYPE_CHECKING

from samcast.group.settings import GroupSettings
from samcast.machine.ports import NEVER_MS, Configured, Effect, NodeId, Send
from samcast.machine.quorum import lists, servers_with
from samcast.wire.change import Join, Moved
from samcast.wire.order import ROLE_COMMIT, Configuration

if TYPE_CHECKING:
    from samcast.group.commit_server import CommitServer


class Joining:
    """The request of one role of one server."""

    def __init__(self, node: NodeId, uuid: int, role: int, settings: GroupSettings) -> None:
        self._node = node
        self._uuid = uuid
        self._role = role
        self._wait_ms = 4 * settings.retry_ms
        self._seen: Configuration | None = None
        self.is_listed = False
        self._due_ms = 0
        self._claim_due_ms = 0
        self._say_ms = settings.retry_max_ms
        self._said_ms = -self._say_ms

    def see(self, configuration: Configuration, out: list[Effect] | None = None) -> None:
        """A configuration is in force: are we in it, with this very disk?"""
        if configuration is not self._seen:
            if self._seen is not None and out is not None:
                out.append(Configured(configuration))
            self._seen = configuration
            self.is_listed = lists(configuration, self._node, self._uuid, self._role)

    def due_ms(self) -> int:
        """When to ask again."""
        return NEVER_MS if self.is_listed else self._due_ms

    def ask(self, now_ms: int, out: list[Effect]) -> None:
        """Ask every commit server; whoever leads orders the change."""
        configuration = self._seen
        if configuration is None or now_ms < self.due_ms():
            return
        self._due_ms = now_ms + self._wait_ms
        join = Join(self._node, self._uuid, configuration.number)
        for server in servers_with(configuration, ROLE_COMMIT):
            if server.node != self._node:
                out.append(Send(server.node, join))

    def stay_heard(self, sequencer: NodeId, now_ms: int, out: list[Effect]) -> None:
        """Have the sequencer know that this disk's server is alive, where nothing else tells."""
        if self.is_listed and self._seen is not None and now_ms >= self._said_ms + self._say_ms:
            self._said_ms = now_ms
            out.append(Send(sequencer, Join(self._node, self._uuid, self._seen.number)))

    def on_claim(self, sender: NodeId, number: int, now_ms: int, out: list[Effect]) -> None:
        """Somebody leads in a later configuration than we know: those whom we would ask may all
        be gone, so ask that one."""
        configuration = self._seen
        is_later = configuration is not None and number > configuration.number
        if is_later and now_ms >= self._claim_due_ms:
            assert configuration is not None
            self._claim_due_ms = now_ms + self._wait_ms
            out.append(Send(sender, Join(self._node, self._uuid, configuration.number)))


def answer_join(server: "CommitServer", sender: NodeId, join: Join, out: list[Effect]) -> None:
    """What a commit server does about such a request: tell of a later configuration, which may
    list the disk already, or have one ordered that does."""
    if join.configuration < server.configuration.number:
        out.append(Send(sender, Moved(server.configuration)))
    elif server.sequencer is not None:
        server.sequencer.on_join(sender, join, out)
