"""RabbitMQ: a quorum queue or a stream over three nodes, with publisher confirms."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW, Processes, await_port, missing
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import can_connect, free_ports

# Debian's commands change to a user of their own, who has no right to our folder; these don't.
BIN = Path("/usr/lib/rabbitmq/bin")
MAPPER_PORT = 4369


def program(name: str) -> str:
    """One of its commands."""
    return str(BIN / name) if (BIN / name).exists() else name


class RabbitMQ:
    """Publish to a queue of a kind, with confirms."""

    had_mapper: bool | None = None  # whether Erlang's port mapper was there before any of us

    def __init__(self, kind: str) -> None:
        self.name = f"rabbitmq-{kind}"
        self.promise = "written by a quorum, not fsynced" if kind == "quorum" else "on a quorum"
        self._kind = kind
        self._processes: Processes | None = None
        self._ports: list[int] = []

    def missing(self) -> str:
        """What must be installed first."""
        return missing("rabbitmq-server", "rabbitmq-server", "pika", "pika")

    def start(self, folder: Path) -> None:
        """Three nodes that find each other by their configuration."""
        self._processes = Processes(folder)
        if RabbitMQ.had_mapper is None:
            RabbitMQ.had_mapper = can_connect("127.0.0.1", MAPPER_PORT)
        self._ports, distribution = free_ports(3), free_ports(3)
        home = folder / "home"
        home.mkdir()
        (home / ".erlang.cookie").write_text("samcastbench")
        (home / ".erlang.cookie").chmod(0o400)
        mark = f"{self._kind}{os.getpid()}"
        names = [f"{mark}n{i}@localhost" for i in (1, 2, 3)]
        lines = [
            "cluster_formation.peer_discovery_backend = classic_config",
            "log.file.level = error",
        ]
        lines += [
            f"cluster_formation.classic_config.nodes.{i} = {n}" for i, n in enumerate(names, 1)
        ]
        environment = {
            **os.environ, "HOME": str(home), "RABBITMQ_CONFIG_FILE": str(folder / "rabbit"),
            "RABBITMQ_MNESIA_BASE": str(folder), "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        }  # fmt: skip
        (folder / "plugins").write_text("[].\n")
        (folder / "rabbit.conf").write_text("\n".join(lines) + "\n")
        for name, port, dist in zip(names, self._ports, distribution, strict=True):
            own = {
                "RABBITMQ_NODENAME": name,
                "RABBITMQ_NODE_PORT": str(port),
                "RABBITMQ_DIST_PORT": str(dist),
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            }
            self._processes.start(
                name.partition("@")[0], [program("rabbitmq-server")], environment | own
            )
            await_port(port)
        self._await_whole(names, environment)

    @staticmethod
    def _await_whole(names: list[str], environment: dict[str, str]) -> None:
        for _ in range(30):
            said = subprocess.run(
                [program("rabbitmqctl"), "-n", names[0], "cluster_status", "--formatter", "json"],
                env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            running = said.stdout.partition('"running_nodes"')[2].partition("]")[0]
            if all(name in running for name in names):
                return
            time.sleep(1)
        raise SamcastError("the three nodes of RabbitMQ don't find each other")

    def stop(self) -> None:
        """End it, and Erlang's port mapper if it came with it."""
        if self._processes is not None:
            self._processes.stop()
            if not RabbitMQ.had_mapper:  # It stays while other nodes need it.
                subprocess.run(["epmd", "-kill"], capture_output=True, check=False)

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """A window of unconfirmed publishes."""
        return _Publisher(self._ports[0], self._kind, bodies, window).run()[0]

    def one(self, body: bytes, count: int) -> list[float]:
        """A window of one."""
        return _Publisher(self._ports[0], self._kind, [body] * count, 1).run()[1]


class _Publisher:
    """Keeps a window full, by the client's callbacks."""

    def __init__(self, port: int, kind: str, bodies: list[bytes], window: int) -> None:
        import pika

        self._pika = pika
        self._bodies = bodies
        self._window = window
        self._kind = kind
        self._queue = f"bench-{kind}"
        self._next = self._confirmed = 0
        self._began = self._ended = 0.0
        self._sent_at: list[float] = []
        self._waits: list[float] = []
        self._channel: Any = None
        parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._connection: Any = pika.SelectConnection(parameters, on_open_callback=self._on_open)

    def run(self) -> tuple[float, list[float]]:
        self._connection.ioloop.start()
        return self._ended - self._began, self._waits

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        arguments = {"x-queue-type": self._kind}
        channel.queue_declare(
            self._queue, durable=True, arguments=arguments, callback=self._on_queue
        )

    def _on_queue(self, _: Any) -> None:
        self._channel.confirm_delivery(self._on_confirmed, callback=self._on_ready)

    def _on_ready(self, _: Any) -> None:
        self._began = time.perf_counter()
        self._fill()

    def _fill(self) -> None:
        properties = self._pika.BasicProperties(delivery_mode=2)
        last = min(len(self._bodies), self._confirmed + self._window)
        while self._next < last:
            self._sent_at.append(time.perf_counter())
            self._channel.basic_publish("", self._queue, self._bodies[self._next], properties)
            self._next += 1

    def _on_confirmed(self, frame: Any) -> None:
        now = time.perf_counter()
        tag = frame.method.delivery_tag
        if self._window == 1:
            self._waits.append((now - self._sent_at[tag - 1]) * 1000)
        self._confirmed = tag if frame.method.multiple else self._confirmed + 1
        if self._confirmed >= len(self._bodies):
            self._ended = now
            self._connection.close()
            self._connection.ioloop.stop()
        else:
            self._fill()
