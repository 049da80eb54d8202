"""Streams of committed payloads to members that asked for them, as far as they asked.

A stream only saves questions: whatever it doesn't bring, a member asks for by number. So streams
may be forgotten at any time, and are, the oldest first, beyond a bound.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from samcast.group.storage import BatchKey, SendStored
from samcast.machine.ports import Effect, NodeId, Send, Warn
from samcast.wire.group import Follow, Head
from samcast.wire.order import CELL
from samcast.wire.retention import Collected

if TYPE_CHECKING:
    from samcast.group.data_server import DataServer

STREAMS_MAX = 4096
RUNS_PER_STREAM_MAX = 100_000


class Stream:
    """What one member still wants of one group."""

    __slots__ = ("head_told", "number_next", "runs_left")

    def __init__(self, number_next: int, runs_left: int) -> None:
        self.number_next = number_next
        self.runs_left = runs_left
        self.head_told = 0


class Streams:
    """All streams of one data server."""

    def __init__(self, server: "DataServer") -> None:
        self._server = server
        self._streams: OrderedDict[tuple[NodeId, int], Stream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def lags(self) -> dict[str, int]:
        """By group, how many messages the reader that is furthest behind hasn't been sent."""
        core = self._server.follower.core
        found: dict[str, int] = {}
        for (_, group), stream in self._streams.items():
            rows = core.groups.get(group)
            if rows is not None:
                behind = max(0, rows.head + 1 - stream.number_next)
                found[rows.name] = max(found.get(rows.name, 0), behind)
        return found

    def on_follow(self, sender: NodeId, follow: Follow, out: list[Effect]) -> None:
        """Begin, or go on with more."""
        if follow.group == CELL or not 1 <= follow.number_first < 2**62:
            out.append(Warn("follow-range", f"{sender}: {follow.group}, {follow.number_first}"))
            return
        key = (sender, follow.group)
        collected = self._server.follower.core.collected(follow.group)
        if follow.number_first <= collected:
            out.append(Send(sender, Collected(follow.group, collected)))
        if not follow.runs and not follow.is_more:  # It hears what it needs by other ways.
            self._streams.pop(key, None)
            return
        stream = self._streams.get(key)
        if stream is None or not follow.is_more:
            first = max(follow.number_first, collected + 1)  # No more of what is gone.
            stream = self._streams[key] = Stream(first, 0)
        self._streams.move_to_end(key)
        stream.runs_left = min(stream.runs_left + follow.runs, RUNS_PER_STREAM_MAX)
        while len(self._streams) > STREAMS_MAX:
            self._streams.popitem(last=False)

    def on_drained(self, out: list[Effect]) -> None:
        """End of a turn: send what has become committed, or what was asked for just now."""
        core = self._server.follower.core
        for (to, group), stream in self._streams.items():
            head = core.head(group)
            if stream.number_next <= head and stream.runs_left:
                self._send(to, group, stream, out)
            if head > stream.head_told:
                stream.head_told = head
                out.append(Send(to, Head(group, head)))

    def _send(self, to: NodeId, group: int, stream: Stream, out: list[Effect]) -> None:
        numbered = self._server.numbered
        most = self._server.settings.repairs_per_reply_max
        found: list[tuple[int, BatchKey]] = []
        while stream.runs_left:
            here = numbered.at(group, stream.number_next)
            if here is None:  # Not committed yet, or lacking here: a repair brings it.
                break
            found.append((here[1], here[0]))
            stream.number_next = here[1] + here[2]
            stream.runs_left -= 1
            if len(found) == most:
                out.append(SendStored(to, tuple(found)))
                found = []
        if found:
            out.append(SendStored(to, tuple(found)))
