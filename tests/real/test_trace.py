"""The way of one message: remembered by real nodes, bounded, and honest about what is forgotten."""

import gzip
import json
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

import samcast
from samcast.client.leading import sequencer_of
from samcast.client.spans import spans_of
from samcast.client.tracing import Happened, Trace, trace
from samcast.errors import RefusedError
from samcast.group.storage import SendStored, StoreBatch
from samcast.machine.ports import Channel, Multicast, Send
from samcast.runtime.local_cluster import LocalCluster
from samcast.runtime.trail import Trail
from samcast.wire.group import Commit, CommitAck, CommitSubmit
from samcast.wire.order import HASH_NONE, EpochEntry
from tests.group.build import batch
from tests.real.striking import NODES, pause

EPOCH = (1, 1, 1)
DAY = timedelta(days=1)


def await_connections(cluster: LocalCluster) -> None:
    """Until every node is connected with every other one."""
    for node in cluster.plan().nodes:
        with samcast.connect(f"{node.host}:{node.port}") as client:
            for _ in range(500):
                connected: Any = client.status()["connected"]
                if connected["nodes"] == 2:
                    break
                pause(0.02)


def whole_trace(cluster: LocalCluster, group: str, number: int) -> Trace:
    """Once every node is through with it."""
    found = trace(cluster.address, group, number)
    for _ in range(100):
        whats = [step.what for step in found.steps]
        if whats.count("stored") == whats.count("learned as committed") == 3 and (
            {step.node for step in found.steps if step.what == "order stored"} == set(NODES)
        ):
            break
        pause(0.1)
        found = trace(cluster.address, group, number)
    return found


@pytest.mark.req("OPS-05")
def test_every_step_of_a_message_is_told_in_order(cluster: LocalCluster) -> None:
    await_connections(cluster)
    with samcast.connect(cluster.address) as client:
        group = client.group("traced")
        group.send(b"one").number(10)
        group.send(b"two").number(10)
        assert len(list(group.read(1, count=2, timeout=10))) == 2
    leader = sequencer_of(cluster)
    found = whole_trace(cluster, "traced", 2)
    assert (found.number_first, found.count, found.silent) == (2, 1, ())
    assert found.index > 0
    at = {(step.node, step.what): step.at_ms for step in reversed(found.steps)}
    others = [name for name in NODES if name != leader]
    for name in NODES:
        assert at[name, "payload received"] <= at[name, "stored"]
        # Whoever hears of the number before its own disk is done has nothing to report.
        assert at.get((name, "reported"), at[name, "stored"]) >= at[name, "stored"]
    numbered = at[leader, "numbered"]
    heard = [s for s in found.steps if s.node == leader and s.what == "report heard"]
    assert len([s for s in heard if s.at_ms <= numbered]) >= 2  # k_data disks
    for name in others:
        assert numbered <= at[name, "order received"] <= at[name, "order stored"]
        assert at[leader, "committed"] <= at[name, "learned as committed"]
    acks = [s for s in found.steps if s.node == leader and s.what == "acknowledgement heard"]
    assert len([s for s in acks if s.at_ms <= at[leader, "committed"]]) >= 2  # k_commit disks
    assert any(s.what == "confirmed to the sender" for s in found.steps)
    assert any(s.what == "sent to a reader" for s in found.steps)


def test_the_command_shows_it_and_says_what_is_not_there(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        client.group("traced").send_many([b"a", b"b", b"c"])
    command = [sys.executable, "-m", "samcast.cli.main", "trace", "--cluster", cluster.address]
    shown = subprocess.run([*command, "traced", "2"], capture_output=True, text=True, check=True)
    for said in ("traced 2", "2 others", "payload received", "numbered", "committed", "●"):
        assert said in shown.stdout
    told = subprocess.run([*command, "traced", "2", "--json"], capture_output=True, check=True)
    assert json.loads(told.stdout)["number_first"] == 1
    assert abs(datetime.now(UTC) - datetime.fromisoformat(json.loads(told.stdout)["began"])) < DAY
    for arguments, complaint in (
        (["traced", "4"], "its newest is 3"), (["traced", "0"], "has no message 0"),
        (["other", "1"], "there is no group 'other'"),
    ):  # fmt: skip
        failed = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        assert failed.returncode == 1
        assert complaint in failed.stderr


def test_what_was_before_a_start_is_forgotten_and_silent_nodes_are_named(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        client.group("old").send(b"long ago").number(10)
    cluster.stop_all()
    cluster.start_all()
    cluster.await_ready()
    sequencer_of(cluster)
    cluster.kill("n3")
    found = trace(cluster.address, "old", 1)
    assert found.silent == ("n3",)
    assert found.count == 1
    assert [step.what for step in found.steps if "committed" in step.what] == []
    with pytest.raises(RefusedError, match="no message 2"):
        trace(cluster.address, "old", 2)


class Collector(BaseHTTPRequestHandler):
    """What takes spans in a test."""

    taken: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.taken.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.req("OPS-05")
def test_its_way_goes_to_a_collector_as_spans(cluster: LocalCluster) -> None:
    proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    await_connections(cluster)
    with samcast.connect(cluster.address) as client:
        client.group("traced").send(b"one").number(10)
    whole_trace(cluster, "traced", 1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    command = [sys.executable, "-m", "samcast.cli.main", "trace", "--cluster", cluster.address]
    done = subprocess.run([*command, "traced", "1", "--otlp", url], capture_output=True, check=True)
    server.shutdown()
    request = proto.ExportTraceServiceRequest.FromString(gunzipped(Collector.taken.pop()))
    spans = request.resource_spans[0].scope_spans[0].spans
    assert done.stdout == b"%d spans sent to %s\n" % (len(spans), url.encode())
    whole = next(span for span in spans if not span.parent_span_id)
    assert whole.name == "message of traced"
    parts = [span for span in spans if span is not whole]
    assert [span.name for span in parts].count("store payload") == 3
    assert [span.name for span in parts].count("order") == 1
    for span in parts:
        assert span.parent_span_id == whole.span_id
        assert whole.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= whole.end_time_unix_nano
    failed = subprocess.run(
        [*command, "traced", "1", "--otlp", "nowhere"], capture_output=True, check=False
    )
    assert failed.returncode == 1
    assert b"is no collector" in failed.stderr


def test_what_only_a_reader_remembers_has_spans_too() -> None:
    pytest.importorskip("opentelemetry.sdk")
    only = Happened(0.0, "n1", "sent to a reader", "a client of this node")
    found = Trace("g", 1, 1, 1, 0, (), "2026-01-01T00:00:00+00:00", (only,))
    assert [span.name for span in spans_of(found)] == ["message of g"]


def gunzipped(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


# The trail itself.


def submit(first: int, count: int) -> CommitSubmit:
    entries = tuple(EpochEntry(EPOCH) for _ in range(count))
    return CommitSubmit(1, EPOCH, first, entries, 0, HASH_NONE)


def ack(index: int, epoch: tuple[int, int, int] = EPOCH) -> CommitAck:
    return CommitAck(1, epoch, 7, index, False, 0, HASH_NONE)


def key(counter: int) -> tuple[int, bytes, int, int, int]:
    made = batch(counter)
    return (made.group, made.sender, made.incarnation, made.counter_first, made.stage)


def whats(trail: Trail, counter: int, index: int) -> list[tuple[str, int]]:
    return [(mark.what, mark.peer) for mark in trail.about(key(counter), index)]


def test_up_to_an_index_tells_only_of_what_was_ordered_before() -> None:
    trail = Trail()
    trail.heard(2, ack(9))  # It is not known here when 5 to 7 were ordered.
    trail.heard(1, submit(5, 3))
    trail.heard(2, ack(4))
    trail.heard(2, ack(6))
    trail.heard(2, ack(7))
    trail.done([Multicast(Channel.GLOBAL, Commit(1, EPOCH, 5, (), 7, HASH_NONE))])
    assert whats(trail, 1, 6) == [
        ("order received", 1),
        ("acknowledgement heard", 2),
        ("committed", 0),
    ]
    assert whats(trail, 1, 8) == []


def test_each_epoch_is_an_attempt_of_its_own() -> None:
    trail = Trail()
    trail.heard(1, submit(5, 3))
    trail.heard(2, ack(7))
    trail.heard(2, ack(7, (2, 3, 1)))
    trail.heard(2, ack(8, (2, 3, 1)))
    marks = trail.about(key(1), 6)
    assert [(mark.what, mark.epoch) for mark in marks] == [
        ("order received", 1),
        ("acknowledgement heard", 1),
        ("acknowledgement heard", 2),
    ]


def test_a_payload_is_followed_from_its_arrival_to_a_reader() -> None:
    trail = Trail()
    trail.heard(77, batch(1))
    trail.done([StoreBatch(5, key(1), batch(1)), StoreBatch(6, key(2), batch(2))])
    assert whats(trail, 1, 0) == [("payload received", 77)]
    trail.stored(5)
    assert whats(trail, 1, 0) == [("payload received", 77), ("stored", 0)]
    assert whats(trail, 2, 0) == []
    trail.stored(6)
    assert whats(trail, 2, 0) == [("stored", 0)]
    trail.done([SendStored(88, ((1, key(1)), (2, key(2)))), Send(1, ack(3))])
    assert ("sent to a reader", 88) in whats(trail, 2, 0)


def test_the_oldest_is_forgotten_first() -> None:
    trail = Trail(weight_max=40)
    for counter in range(1, 100):
        trail.heard(77, batch(counter))
    assert whats(trail, 1, 0) == []
    assert whats(trail, 79, 0) == []
    assert whats(trail, 80, 0) == [("payload received", 77)]
    assert whats(trail, 99, 0) == [("payload received", 77)]
