"""Which new disk of a listed node the sequencer lets in by itself, and which waits for a person
(ADR 34).

A node whose disk was lost comes back with a new one and asks for its place. So does a copy of its
folder that somebody has started beside it, or a life of long ago, while the listed disk serves.
Told apart they can only be by silence: the listed disk must have said nothing for long, however
this sequencer listened. What was replaced once never takes its place back by itself, so two lives
of a node can't replace each other in turns.
"""

from typing import TYPE_CHECKING

import msgspec

from samcast.machine.ports import Effect, NodeId, Warn
from samcast.wire.change import Join
from samcast.wire.order import Server

if TYPE_CHECKING:
    from samcast.group.sequencer import Sequencer

WAITING_MAX = 64  # disks that ask; the one that asked longest ago is forgotten first


class Waiting(msgspec.Struct):
    """A disk that asks for the place of another."""

    node: NodeId
    uuid: int
    since_ms: int
    asked_ms: int
    why: str = ""  # it is not let in
    is_rival: bool = False  # the other one was heard since
    is_told: bool = False


class Admitting:
    """What is known of disks, listed and new, in one epoch."""

    def __init__(self, sequencer: "Sequencer", silence_ms: int, step_ms: int) -> None:
        self._sequencer = sequencer
        self._silence_ms = silence_ms
        self._step_ms = step_ms
        self._looked_ms = sequencer.now_ms
        self._listened_ms = 0  # in this epoch; while we stand still, nobody is silent
        # By uuid of the listed disks, on that clock.
        self._heard_ms = {server.uuid: 0 for server in sequencer.configuration.servers}
        self.waiting: dict[int, Waiting] = {}  # by uuid

    def on_tick(self) -> None:
        """Some time has passed. After a pause of ours what was said meanwhile is still unread, so
        no long time counts at once."""
        now_ms = self._sequencer.now_ms
        self._listened_ms += max(0, min(now_ms - self._looked_ms, self._step_ms))
        self._looked_ms = now_ms

    def on_heard(self, uuid: int) -> None:
        """This disk has said something, in whatever role."""
        if uuid in self._heard_ms:
            self._heard_ms[uuid] = self._listened_ms

    def silent_ms(self, uuid: int) -> int:
        """For how long a disk has said nothing."""
        return self._listened_ms - self._heard_ms.get(uuid, 0)

    def may_join(self, join: Join, out: list[Effect]) -> bool:
        """Whether a disk that asks gets its node's place now."""
        listed = self.listed(join.node)
        if listed is None or listed.uuid == join.uuid:
            return False
        asking = self._note(join)
        asking.why = self.why_not(listed, join.uuid)
        # Some words of a disk that is gone may still be under way when the new one asks already.
        is_late = self._heard_ms[listed.uuid] > asking.since_ms + self._sequencer.report_ms
        asking.is_rival = asking.is_rival or is_late
        if asking.is_rival and not asking.is_told:
            asking.is_told = True
            out.append(
                Warn("two-lives", f"of node {join.node}: disk {listed.uuid} is listed and answers,"
                     f" and disk {join.uuid} asks for its place; stop the one that is a mistake")
            )  # fmt: skip
        return not asking.why

    def listed(self, node: NodeId) -> Server | None:
        """A node as the configuration has it."""
        servers = self._sequencer.configuration.servers
        return next((server for server in servers if server.node == node), None)

    def _note(self, join: Join) -> Waiting:
        asking = self.waiting.pop(join.uuid, None)
        if asking is None:
            asking = Waiting(join.node, join.uuid, self._listened_ms, self._listened_ms)
            if len(self.waiting) >= WAITING_MAX:
                del self.waiting[next(iter(self.waiting))]
        asking.asked_ms = self._listened_ms
        self.waiting[join.uuid] = asking
        return asking

    def why_not(self, listed: Server, uuid: int) -> str:
        """Why a disk isn't let in by itself; nothing if it is."""
        if listed.node == self._sequencer.epoch[1]:
            return "that is the id of the node that leads"
        if (listed.node, uuid) in self._sequencer.tail.replaced:
            return "it was replaced by another disk before"
        silent_ms = self.silent_ms(listed.uuid)
        if silent_ms < self._silence_ms:
            return (
                f"disk {listed.uuid} is listed and was heard {silent_ms} ms ago; it must be silent"
                f" for {self._silence_ms} ms"
            )
        return ""

    def asking(self) -> list[Waiting]:
        """Those who still ask."""
        since = self._listened_ms - 4 * self._sequencer.report_ms
        return [asking for asking in self.waiting.values() if asking.asked_ms >= since]
