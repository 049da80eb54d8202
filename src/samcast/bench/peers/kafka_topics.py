"""Kafka: three brokers that are their own controllers (KRaft); a topic of one partition with three
replicas. There is no package of it: `$SAMCAST_KAFKA_LIBS` names a folder with its jars.
"""

import base64
import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW, Processes, await_port, missing
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import free_ports

LIBS = "SAMCAST_KAFKA_LIBS"
TOPIC = "bench"
READY_S = 60.0
LARGEST = 4 * 1024 * 1024
PROPERTIES = """
process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}
message.max.bytes={largest}
replica.fetch.max.bytes={largest}
offsets.topic.replication.factor=3
{more}
"""


class Kafka:
    """acks=all, at least two replicas in sync; fsynced before that only if it is told to."""

    def __init__(self, *, is_synced: bool) -> None:
        self.name = "kafka-sync" if is_synced else "kafka"
        self.promise = (
            "fsynced on all replicas in sync" if is_synced else "in memory of all replicas in sync"
        )
        self._is_synced = is_synced
        self._processes: Processes | None = None
        self._address = ""

    def missing(self) -> str:
        """What must be installed first."""
        wanted = missing("java", "default-jre-headless", "confluent_kafka", "confluent-kafka")
        libs = Path(os.environ.get(LIBS, "/nowhere"))
        if not list(libs.glob("kafka_*.jar")):
            jars = (
                f"put the jars of org.apache.kafka:kafka_2.13 and what it needs into a folder (mvn"
                f" dependency:copy-dependencies) and name it by {LIBS}"
            )
            return f"{wanted} && {jars}" if wanted else jars
        return wanted

    def start(self, folder: Path) -> None:
        """Three brokers, and the topic."""
        self._processes = Processes(folder)
        java = [shutil.which("java") or "java", "-Xmx700m", "-cp", f"{os.environ[LIBS]}/*"]
        ports = free_ports(6)
        voters = ",".join(f"{i}@127.0.0.1:{ports[2 + i]}" for i in (1, 2, 3))
        cluster = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        for i in (1, 2, 3):
            config = folder / f"{i}.properties"
            config.write_text(PROPERTIES.format(
                id=i, voters=voters, port=ports[i - 1], controller=ports[2 + i],
                folder=folder / f"log-{i}", largest=LARGEST,
                more="log.flush.interval.messages=1" if self._is_synced else "",
            ))  # fmt: skip
            formatting = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
            subprocess.run([*java, *formatting], check=True, capture_output=True)
            self._processes.start(f"kafka-{i}", [*java, "kafka.Kafka", str(config)])
        for port in ports:
            await_port(port)
        self._address = ",".join(f"127.0.0.1:{port}" for port in ports[:3])
        self._make_topic()

    def _make_topic(self) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin: Any = AdminClient({"bootstrap.servers": self._address})
        limit = time.monotonic() + READY_S
        while True:
            topic = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
            try:
                admin.create_topics([topic])[TOPIC].result(10)
                return
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return  # An earlier try of ours has made it after all.
                if time.monotonic() > limit:
                    raise SamcastError(f"Kafka is not ready: {error}") from error
                time.sleep(0.5)

    def stop(self) -> None:
        """End it."""
        if self._processes is not None:
            self._processes.stop()

    def _producer(self, window: int, linger_ms: int) -> Any:
        from confluent_kafka import Producer

        return Producer({
            "bootstrap.servers": self._address, "acks": "all", "linger.ms": linger_ms,
            "queue.buffering.max.messages": window, "message.max.bytes": LARGEST,
        })  # fmt: skip

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Messages with a callback each, so many on their way."""
        producer = self._producer(window, 1)
        producer.list_topics(TOPIC, 10)  # connected
        failed: list[object] = []

        def on_done(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        began = time.perf_counter()
        for body in bodies:
            while True:
                try:
                    producer.produce(TOPIC, body, on_delivery=on_done)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush()
        took = time.perf_counter() - began
        if failed:
            raise SamcastError(f"Kafka failed: {failed[0]}")
        return took

    def one(self, body: bytes, count: int) -> list[float]:
        """One message after the other."""
        producer = self._producer(10, 0)
        producer.list_topics(TOPIC, 10)
        waits: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            producer.produce(TOPIC, body)
            producer.flush()
            waits.append((time.perf_counter() - began) * 1000)
        return waits
