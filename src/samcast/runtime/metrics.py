"""What a node counts, for Prometheus: read off the roles when somebody asks, not kept twice."""

import shutil
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from samcast.disk.data_store import DataStore
from samcast.group.commit_server import CommitServer
from samcast.group.data_server import DataServer
from samcast.runtime.histogram import Histogram
from samcast.runtime.sync_thread import SyncThread
from samcast.runtime.telling import Telling
from samcast.version import VERSION

GROUPS_MAX = 200  # with a line each; the others are in the sum


class Metrics(Collector):
    """The numbers of one node."""

    def __init__(
        self, telling: Telling, payloads: DataStore, devices: dict[str, SyncThread]
    ) -> None:
        self._telling = telling
        self._payloads = payloads
        self._devices = devices
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the node's roles."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._of_process()
        yield from self._of_network()
        yield from self._of_multicast()
        yield from self._of_disks()
        if self._telling.commit is not None:
            yield from _of_commit(self._telling.commit)
        if self._telling.data is not None:
            yield from _of_data(self._telling.data)
        trail = self._telling.trail
        yield _times("samcast_stored_seconds",
                     "From the arrival of a payload until it is durable here.",
                     [([], trail.stored_s)])  # fmt: skip
        yield _times("samcast_confirmed_seconds",
                     "From the arrival of a payload until its sender is told its number.",
                     [([], trail.confirmed_s)])  # fmt: skip

    def _of_process(self) -> Iterator[Metric]:
        telling = self._telling
        labels = {
            "cluster": telling.plan.cluster,
            "node": telling.node.name,
            "roles": " ".join(telling.node.roles),
            "version": VERSION,
        }
        info = GaugeMetricFamily("samcast_node", "Who this is.", labels=list(labels))
        info.add_metric(list(labels.values()), 1)
        yield info
        up_s = time.monotonic() - telling.started_at
        yield GaugeMetricFamily("samcast_up_seconds", "Since the node has started.", up_s)
        host = telling.host
        yield CounterMetricFamily("samcast_turns", "Turns of the event loop.", host.turns)
        yield _times("samcast_turn_seconds", "How long turns took.", [([], host.turn_s)])
        warnings = CounterMetricFamily(
            "samcast_warnings", "Mistakes of others, and losses.", labels=["code"]
        )
        nonsense = telling.mesh.nonsense if telling.mesh is not None else {}
        for code, count in {**host.warnings, **nonsense}.items():
            warnings.add_metric([code], count)
        yield warnings

    def _of_network(self) -> Iterator[Metric]:
        mesh = self._telling.mesh
        if mesh is None:
            return
        connections = GaugeMetricFamily("samcast_connections", "Who is there.", labels=["kind"])
        for kind, count in mesh.connected().items():
            connections.add_metric([kind], count)
        yield connections
        traffic = mesh.traffic
        yield CounterMetricFamily("samcast_received_frames", "Frames in.", traffic.frames_in)
        yield CounterMetricFamily("samcast_received_bytes", "Bytes in.", traffic.bytes_in)
        yield CounterMetricFamily("samcast_sent_bytes", "Bytes out.", traffic.bytes_out)
        yield CounterMetricFamily(
            "samcast_dropped_frames", "For somebody who doesn't keep up.", traffic.dropped
        )
        yield CounterMetricFamily(
            "samcast_parted_clients", "That held too much unread.", mesh.readers.parted
        )

    def _of_multicast(self) -> Iterator[Metric]:
        datagrams = self._telling.mesh.datagrams if self._telling.mesh is not None else None
        if datagrams is None:
            return
        family = CounterMetricFamily(
            "samcast_datagrams", "Of multicast: sent (and their bytes), received, questions asked"
            " and answered, pieces repeated for others; and frames given up.", labels=["what"],
        )  # fmt: skip
        for what, count in datagrams.counts().items():
            family.add_metric([what], count)
        yield family
        dropped = CounterMetricFamily(
            "samcast_datagrams_dropped", "That made no sense, or weren't for us.", labels=["code"]
        )
        for code, count in datagrams.dropped.items():
            dropped.add_metric([code], count)
        yield dropped

    def _of_disks(self) -> Iterator[Metric]:
        syncs = CounterMetricFamily(
            "samcast_syncs", "How often a disk was waited for.", labels=["log"]
        )
        for log, device in self._devices.items():
            syncs.add_metric([log], device.syncs)
        yield syncs
        yield _times("samcast_sync_seconds", "How long a write and its sync took.",
                     [([("log", log)], device.sync_s)
                      for log, device in self._devices.items()])  # fmt: skip
        yield CounterMetricFamily(
            "samcast_payload_bytes", "Written to data segments.", self._payloads.bytes_written
        )
        free = shutil.disk_usage(self._telling.node.folder).free
        yield GaugeMetricFamily("samcast_disk_free_bytes", "Where the node's folder is.", free)


def _of_commit(commit: CommitServer) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "samcast_sequencing",
        "Whether this node numbers messages.",
        int(commit.sequencer is not None),
    )
    yield GaugeMetricFamily("samcast_epoch", "Of the newest entry.", commit.core.epoch[0])
    yield GaugeMetricFamily("samcast_committed_index", "Of the order.", commit.core.index)
    yield GaugeMetricFamily(
        "samcast_order_entries", "Kept in memory and on disk.", commit.log.length - commit.log.base
    )
    yield GaugeMetricFamily(
        "samcast_unacknowledged_entries", "Ordered here and not yet committed.",
        commit.log.length - commit.core.index,
    )  # fmt: skip
    heads = CounterMetricFamily("samcast_messages", "Numbered, per group.", labels=["group"])
    rows = [r for g, r in commit.core.groups.items() if g and not r.is_removed]
    for row in rows[:GROUPS_MAX]:
        heads.add_metric([row.name], row.head)
    yield heads
    yield CounterMetricFamily(
        "samcast_messages_of_all_groups", "Numbered.", sum(row.head for row in rows)
    )
    yield GaugeMetricFamily("samcast_groups", "That there are.", len(rows))


def _of_data(data: DataServer) -> Iterator[Metric]:
    yield GaugeMetricFamily("samcast_disk_full", "Whether payloads are refused.", int(data.is_full))
    yield GaugeMetricFamily(
        "samcast_whole", "Whether everything committed is held here.", int(data.numbered.is_whole)
    )
    yield GaugeMetricFamily(
        "samcast_waiting_runs", "Held here without a number.", len(data.unnumbered)
    )
    yield GaugeMetricFamily("samcast_applied_index", "All held and marked.", data.applied)
    repairs = CounterMetricFamily(
        "samcast_repairs", "Questions for payloads, payloads that came.", labels=["what"]
    )
    repairs.add_metric(["asked"], data.repairs.asked)
    repairs.add_metric(["brought"], data.repairs.brought)
    yield repairs
    yield GaugeMetricFamily("samcast_readers", "Streams to members.", len(data.streams))
    lag = GaugeMetricFamily(
        "samcast_reader_lag", "Messages that the slowest reader of a group hasn't been sent.",
        labels=["group"],
    )  # fmt: skip
    for group, behind in sorted(data.streams.lags().items())[:GROUPS_MAX]:
        lag.add_metric([group], behind)
    yield lag


def _times(
    name: str, text: str, histograms: list[tuple[list[tuple[str, str]], Histogram]]
) -> HistogramMetricFamily:
    labels = [label for label, _ in histograms[0][0]]
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in histograms:
        family.add_metric([value for _, value in values], histogram.buckets(), histogram.sum_s)
    return family
