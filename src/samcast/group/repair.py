"""Repairs between data servers and towards members: who asks whom for which payloads (GRP-09, 10,
27).

Committed payloads that we lack are asked for by number, the peers in turn, many in one query.
What the sequencer sees on too few disks is fetched by id. Whatever anybody asks of us is sent as
stored.
"""

from typing import TYPE_CHECKING

from samcast.group.payloads import key_of
from samcast.group.storage import BatchKey, SendRows, SendStored
from samcast.machine.ports import Effect, NodeId, Send, Warn
from samcast.machine.quorum import servers_with
from samcast.wire.batch import decode_batch
from samcast.wire.errors import WireError
from samcast.wire.group import FetchPlease, PayloadRequest, Repair, RunKey
from samcast.wire.order import ROLE_DATA
from samcast.wire.retention import Collected
from samcast.wire.rows import ANY_TIME, Rows, RowsRequest, Skipped
from samcast.wire.stages import StageKey, Stages, StagesRequest

if TYPE_CHECKING:
    from samcast.group.data_server import DataServer

BIRTH_UNKNOWN = 2**62  # so nothing is over just because it is old
MORE_BYTES = 256 * 1024  # so large a piece of an answer is probably not its last one


class Repairs:
    """The repairs of one data server."""

    def __init__(self, server: "DataServer") -> None:
        self._server = server
        self._settings = server.settings
        self._turn = server.node
        self.due_ms = 0
        self.asked = 0  # questions to other data servers
        self.brought = 0  # payloads that came of them

    # others'

    def on_payload_request(
        self, sender: NodeId, request: PayloadRequest, out: list[Effect]
    ) -> None:
        """Send what we have of what is asked for, bounded."""
        most = self._settings.repairs_per_reply_max
        found: dict[BatchKey, int] = {}
        for run in request.runs[:most]:
            self._find((*run, 0), found)
        for stage in request.stages[:most]:
            self._find(stage, found)
        for group, first, count in request.spans[:most]:
            self._find_span(group, first, first + count, found, most)
        self._say_what_is_gone(sender, request, out)
        if found:
            batches = tuple((number, key) for key, number in list(found.items())[:most])
            # A server has room for all of it; a member may not, and asks again.
            servers = servers_with(self._server.follower.configuration, ROLE_DATA)
            is_server = any(server.node == sender for server in servers)
            is_urgent = bool(request.runs or request.stages)
            out.append(SendStored(sender, batches, not is_server, is_urgent))

    def _say_what_is_gone(self, sender: NodeId, request: PayloadRequest, out: list[Effect]) -> None:
        """Who asks for something that retention has taken must not wait for it."""
        core = self._server.follower.core
        firsts: dict[int, int] = {}
        for group, first, _ in request.spans:
            firsts[group] = min(first, firsts.get(group, first))
        for key in (*[(*run, 0) for run in request.runs], *request.stages):
            if not self._server.has(key):
                firsts.setdefault(key[0], 1)
        for group, first in firsts.items():
            if first <= core.collected(group):
                out.append(Send(sender, Collected(group, core.collected(group))))

    def on_stages_request(self, sender: NodeId, request: StagesRequest, out: list[Effect]) -> None:
        """Say which stages are on our disk, and which are in vain."""
        server = self._server
        lists: tuple[list[StageKey], ...] = ([], [], [], [])
        durable, writing, over, unknown = lists
        most = self._settings.decision_stages_max  # so that who asks for all of one hears of all
        for key, digest in zip(request.stages[:most], request.digests, strict=False):
            held = server.unnumbered.get(key)
            is_numbered = key in server.numbered
            here = server.numbered.digest_of(key) if is_numbered else held and held.digest
            if here is not None and here != digest:
                over.append(key)  # What is here is not what was sent, and stays.
            elif is_numbered or (held is not None and held.is_durable):
                durable.append(key)
                server.reports.hurry(key)  # Somebody waits for it, and the sequencer may not know.
            elif held is not None:
                writing.append(key)
            elif server.dropping.may_drop_stage(key, BIRTH_UNKNOWN):
                over.append(key)
            else:
                unknown.append(key)
        out.append(Send(sender, Stages(server.uuid, *map(tuple, lists))))

    def on_rows_request(self, sender: NodeId, request: RowsRequest, out: list[Effect]) -> None:
        """Short runs together, long ones as they are."""
        server = self._server
        group, first, end = request.group, request.number_first, request.number_end
        collected = server.follower.core.collected(group)
        if first <= collected:
            out.append(Send(sender, Collected(group, collected)))
            return
        if request.sent != ANY_TIME:
            begin, end = server.numbered.sent_within(group, first, end, request.sent)
            if begin > first:
                out.append(Send(sender, Skipped(group, first, begin)))
                return
        if request.as_stored and (runs := server.numbered.single_runs(group, first, end)):
            out.append(SendRows(sender, first, runs, are_single=True))
            return
        number_first, runs = server.numbered.short_runs(group, first, end)
        if runs:
            out.append(SendRows(sender, number_first, runs))
            return
        found: dict[BatchKey, int] = {}
        self._find_span(group, first, end, found, self._settings.repairs_per_reply_max)
        if found:
            batches = tuple((number, key) for key, number in found.items())
            out.append(SendStored(sender, batches, is_one=True))
        else:
            out.append(Send(sender, Rows(group, first)))

    def _find(self, key: BatchKey, found: dict[BatchKey, int]) -> None:
        server = self._server
        if key in server.numbered:
            found[key] = server.numbered.number_of(key)
            return
        held = server.unnumbered.get(key)
        if held is not None and held.is_durable:
            found[key] = 0

    def _find_span(
        self, group: int, at: int, end: int, found: dict[BatchKey, int], most: int
    ) -> None:
        while at < end and len(found) < most:
            here = self._server.numbered.at(group, at)
            if here is None:
                return
            found[here[0]] = here[1]
            at = here[1] + here[2]

    # our own

    def on_fetch_please(self, sender: NodeId, please: FetchPlease, out: list[Effect]) -> None:
        """The sequencer waits for copies that we don't have."""
        server = self._server
        holders = [h for h in please.holders if h != server.node]
        if not holders or please.epoch < server.follower.epoch:
            return
        runs: list[RunKey] = [r for r in please.runs if not server.has((*r, 0))]
        stages: list[StageKey] = [s for s in please.stages if not server.has(s)]
        if runs or stages:
            self._turn += 1
            self.asked += 1
            holder = holders[self._turn % len(holders)]
            out.append(Send(holder, PayloadRequest(tuple(runs), tuple(stages))))

    def ask(self, now_ms: int, out: list[Effect]) -> None:
        """Ask peers, in turn, for committed payloads that we lack."""
        server = self._server
        if now_ms < self.due_ms or server.is_full or server.numbered.is_whole:
            return
        self.due_ms = now_ms + self._settings.retry_ms
        spans = server.numbered.lacking_spans(self._settings.spans_per_request_max)
        configuration = server.follower.configuration
        peers = [s.node for s in servers_with(configuration, ROLE_DATA) if s.node != server.node]
        if peers:
            self._turn += 1
            self.asked += 1
            to = peers[self._turn % len(peers)]
            out.append(Send(to, PayloadRequest((), (), tuple(spans))))

    def on_repair(self, sender: NodeId, repair: Repair, out: list[Effect]) -> None:
        """Take what fills a hole, or what the sequencer had us fetch."""
        server = self._server
        if server.is_full:
            return
        before = self.brought
        for number_first, payload in repair.batches:
            try:
                batch = decode_batch(payload)
            except WireError as error:
                out.append(Warn("repair-malformed", f"{sender}: {error}"))
                continue
            key = key_of(batch)
            if key in server.numbered:
                continue
            if not number_first:
                self.brought += 1
                server.admitting.take_fetched(key, batch, out)
            elif server.numbered.wants(key, number_first, batch.count, batch.digest):
                self.brought += 1
                server.store_numbered(key, batch, number_first, out)
        if self.brought > before and sum(len(p) for _, p in repair.batches) < MORE_BYTES:
            self.due_ms = 0  # That was all of an answer: ask for more, as fast as it comes.
