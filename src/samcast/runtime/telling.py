"""What a node tells people and their tools of itself."""

import os
import time
from typing import Any

import msgspec

from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.data_server import DataServer
from samcast.group.retained import Retained
from samcast.group.sequencer import Sequencer
from samcast.group.storage import BatchKey
from samcast.runtime.cluster_file import ClusterPlan, NodePlan
from samcast.runtime.cluster_text import cluster_text
from samcast.runtime.directory import Directory
from samcast.runtime.host import Host
from samcast.runtime.mesh import Mesh
from samcast.runtime.scrub import Scrub
from samcast.runtime.trail import Trail, find_entry
from samcast.wire.session import PlanRequest, StatusRequest, TraceRequest

TRACE_PAUSE_S = 0.2  # between two traces, which look through all that is remembered
STATUS_PAUSE_S = 0.005
NO_KEY: BatchKey = (0, b"", 0, 0, 0)


class Telling:
    """Answers for one node; it is told of its parts as they come to be."""

    def __init__(
        self, plan: ClusterPlan, node: NodePlan, directory: Directory, host: Host, trail: Trail
    ) -> None:
        self.plan = plan
        self.node = node
        self.uuid = 0  # of its disk, once that is open
        self._directory = directory
        self.host = host
        self.trail = trail
        self.started_at = time.monotonic()
        self.fold_problems: dict[int, str] = {}  # by group: why it has no checkpoint
        self._trace_from = 0.0
        self._status_from = 0.0
        self._status = b""
        self.mesh: Mesh | None = None
        self.commit: CommitServer | None = None
        self.data: DataServer | None = None
        self.scrub: Scrub | None = None

    def answer(self, question: StatusRequest | TraceRequest | PlanRequest) -> bytes:
        """As JSON; whoever asks all the time gets no more than the node can spare."""
        now = time.monotonic()
        if isinstance(question, PlanRequest):
            return cluster_text(self.plan, is_shared=True).encode()
        if isinstance(question, TraceRequest):
            if now < self._trace_from:
                return msgspec.json.encode({"name": self.node.name, "is_busy": True})
            said = msgspec.json.encode(self.trace(question.group, question.number))
            self._trace_from = time.monotonic() + TRACE_PAUSE_S
            return said
        if now >= self._status_from:
            self._status = msgspec.json.encode(self.status())
            self._status_from = now + STATUS_PAUSE_S
        return self._status

    def status(self) -> dict[str, Any]:
        """How this node is."""
        said: dict[str, Any] = {
            "name": self.node.name,
            "id": self.node.id,
            "pid": os.getpid(),
            "address": f"{self.node.host}:{self.node.port}",
            "metrics": f"http://{self.node.metrics}/metrics" if self.node.metrics else "",
            "roles": list(self.node.roles),
            "cluster": self.plan.cluster,
            "up_s": round(time.monotonic() - self.started_at, 1),
            "connected": self.mesh.connected() if self.mesh is not None else {},
            "two_lives": self.mesh.lives.seen() if self.mesh is not None else [],
            "warnings": self.host.warnings,
            "last_warnings": self.host.last_warnings,
            "fold_problems": self.fold_problems,
            "sequencing": False,
            "uuid": self.uuid,
            "configuration": self._directory.configuration.number,
            "is_listed": self._directory.lists(self.node.id),
        }
        if self.mesh is not None and self.mesh.datagrams is not None:
            said["multicast"] = self.mesh.datagrams.counts()
        if self.commit is not None:
            said.update(_of_commit(self.commit))
            said["asking"] = self._asking(self.commit)
        if self.data is not None:
            said["data"] = _of_data(self.data)
            said.setdefault("groups", _groups_of(self.data.follower.core))
            said.setdefault("is_current", self.data.follower.is_current)
        if self.scrub is not None:
            said["scrub"] = {
                "rounds": self.scrub.rounds,
                "payloads": self.scrub.payloads,
                "rotten": self.scrub.rotten,
            }
        return said

    def _asking(self, commit: CommitServer) -> list[dict[str, Any]]:
        """New disks of listed nodes that ask whoever leads for their place."""
        if commit.sequencer is None:
            return []
        return [
            {
                "node": asking.node,
                "name": self._directory.name_of(asking.node),
                "disk": asking.uuid,
                "why_not": asking.why,
                "is_rival": asking.is_rival,
            }
            for asking in commit.sequencer.changing.admitting.asking()
        ]

    def trace(self, group: int, number: int) -> dict[str, Any]:
        """What this node still knows of the way of one message."""
        said: dict[str, Any] = {"name": self.node.name, "id": self.node.id, "steps": []}
        is_known = self.commit is None or self.commit.queries.is_current
        said["is_current"] = is_known and (self.data is None or self.data.follower.is_current)
        found = self.data.numbered.at(group, number) if self.data is not None else None
        entry = find_entry(self.commit.log, group, number) if self.commit is not None else None
        if found is not None:
            said["number_first"], said["count"] = found[1], found[2]
        if entry is not None:
            said["index"] = entry[0]
        key, index = found[0] if found is not None else NO_KEY, entry[0] if entry is not None else 0
        marks = self.trail.about(key, index)
        said["steps"] = [msgspec.structs.asdict(mark) for mark in marks]
        return said


def _of_commit(commit: CommitServer) -> dict[str, Any]:
    return {
        "sequencing": commit.sequencer is not None,
        "epoch": commit.core.epoch[0],
        "leader": commit.election.leader,
        "index": commit.core.index,
        "is_current": commit.queries.is_current,  # else what is listed may not be all there is
        "state": _state_of(commit),
        "change_waits_for": commit.sequencer.changing.waits_for if commit.sequencer else "",
        "groups": _groups_of(commit.core, commit.sequencer),
    }


def _groups_of(core: Core, sequencer: Sequencer | None = None) -> list[dict[str, Any]]:
    return [
        {"name": rows.name, "id": group, "head": rows.head, **_kept(core, group, sequencer)}
        for group, rows in core.groups.items()
        if group and not rows.is_removed
    ]


def _kept(core: Core, group: int, sequencer: Sequencer | None) -> dict[str, Any]:
    """What stays of a group. How long leases last, only who leads can tell."""
    retained = core.retained_of(group) or Retained()
    leases: dict[str, dict[str, float]] = {}
    for name, lease in retained.leases.items():
        leases[name] = {"number": lease[0], "ttl_s": lease[1] / 1000}
        if sequencer is not None:
            leases[name]["left_s"] = sequencer.retention.left_ms(group, name, lease) / 1000
    return {
        "oldest": retained.collected + 1,
        "keep": msgspec.structs.asdict(retained.keep),
        "checkpoints": [
            {"number": c.number, "rows": c.rows, "bytes": c.size, "hash": c.hash.hex()}
            for c in retained.checkpoints
        ],
        "leases": leases,
    }


def _state_of(commit: CommitServer) -> str:
    if commit.sequencer is not None:
        return "sequencing"
    return "learner" if commit.is_learner else commit.election.state.value


def _of_data(data: DataServer) -> dict[str, Any]:
    return {
        "is_full": data.is_full,
        "is_whole": data.numbered.is_whole,
        "waiting": len(data.unnumbered),
        "streams": len(data.streams),
    }
