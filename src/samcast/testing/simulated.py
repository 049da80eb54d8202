"""A cluster in the test's own process: the real roles and formats, virtual time, seeded faults."""

from collections.abc import Iterator
from typing import Any

from samcast.client.inbox import Message, messages_from
from samcast.client.outbox import error_of
from samcast.errors import ClientError, ConfigError, SamcastError, WaitTimeoutError
from samcast.group.member import Deliver, Member
from samcast.group.sender import Confirmed, Failed, Sender, Submitted
from samcast.machine.ports import Channel, Effect, Role
from samcast.sim.cluster import Cluster
from samcast.sim.trace import Trace
from samcast.sim.world import Process, World
from samcast.wire.batch import columns_from_cells
from samcast.wire.group import AnswerKind, GroupRequest, OutcomeKind

SECOND_US = 1_000_000
WAIT_S = 60.0  # of virtual time
LIFETIME = 10_000_000
SENDERS_MAX = 100_000


class SimulatedCluster:
    """Three nodes. Time passes only while somebody waits."""

    def __init__(self, seed: int = 0, loss: float = 0.02) -> None:
        self._world = World(seed)
        self._cluster = Cluster(self._world, Trace(None), is_plain=True)
        self._world.network.loss = loss
        self._world.network.late = loss
        self._groups: dict[str, SimulatedGroup] = {}
        self._cluster.start()

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes, as those of real ones."""
        return [f"n{at}" for at, _ in enumerate(self._cluster.servers, 1)]

    def group(self, name: str) -> "SimulatedGroup":
        """A group by its name; it is made if it isn't there."""
        if name not in self._groups:
            proposer = self._cluster.propose(GroupRequest(name, LIFETIME, SENDERS_MAX))
            self.wait_for(lambda: proposer.outcome is not None)
            assert proposer.outcome is not None
            if proposer.outcome.kind is not OutcomeKind.GROUP:
                raise SamcastError(f"group {name!r} was refused")
            self._groups[name] = SimulatedGroup(self, self._cluster, proposer.outcome.value)
        return self._groups[name]

    def kill(self, name: str) -> str:
        """End a server at once, its unsynced writes with it; `sequencer` is whoever leads."""
        process = self._process(name)
        process.stop()
        return self.nodes[self._cluster.servers.index(process)]

    def restart(self, name: str) -> None:
        """Start a server that was killed."""
        process = self._process(name)
        if not process.is_up:
            self._cluster.start_server(process)

    def _process(self, name: str) -> Process:
        if name == "sequencer":
            self.wait_for(lambda: bool(self._cluster.sequencers()))
            return self._cluster.sequencers()[0]
        if name not in self.nodes:
            raise ConfigError(
                f"there is no node {name!r}; there are {', '.join(self.nodes)}, and 'sequencer'"
            )
        return self._cluster.servers[self.nodes.index(name)]

    def wait_for(self, is_done: Any, timeout: float | None = None) -> None:
        """Let virtual time pass until something is so."""
        limit = self._world.now_us + int((timeout or WAIT_S) * SECOND_US)
        if not is_done() and not self._world.run_until(limit, is_done):
            raise WaitTimeoutError(f"not within {timeout or WAIT_S} simulated seconds")

    def close(self) -> None:
        """Nothing is left behind by a simulation."""


class SimulatedReceipt:
    """One message on its way."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._number: int | None = None
        self._error: ClientError | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether it is committed, as far as we know."""
        return self._number is not None

    def number(self, timeout: float | None = None) -> int:
        """Let time pass until it is committed; its number."""
        self._cluster.wait_for(lambda: self._number is not None or self._error, timeout)
        if self._error is not None:
            raise self._error
        assert self._number is not None
        return self._number

    def settle(self, effect: Confirmed | Failed) -> None:
        """The outcome is known."""
        if isinstance(effect, Confirmed):
            self._number = effect.number_first
        else:
            self._error = error_of(AnswerKind(effect.kind))


class SimulatedGroup:
    """Sends and reads as `samcast.connect().group(...)` does."""

    def __init__(self, cluster: SimulatedCluster, inner: Cluster, number: int) -> None:
        self._cluster = cluster
        self._inner = inner
        self.id = number
        self._receipts: dict[int, SimulatedReceipt] = {}
        self._token = 0
        self._process = inner.add_client("sender")
        self._process.on_effect = self._on_effect
        sender = Sender(
            self._process.node, inner.configuration, inner.settings, inner.world.chance, number
        )
        self._process.start([sender])

    def _on_effect(self, process: Process, role: Role, effect: Effect) -> None:
        if type(effect) is Confirmed or type(effect) is Failed:
            self._receipts.pop(effect.token).settle(effect)

    def send(self, body: bytes | str, key: bytes = b"", headers: bytes = b"") -> SimulatedReceipt:
        """Send a message; time passes only when somebody waits for it."""
        data = body.encode() if isinstance(body, str) else body
        self._token += 1
        receipt = self._receipts[self._token] = SimulatedReceipt(self._cluster)
        columns = columns_from_cells([data], [key], [headers])
        self._process.post(0, Submitted(self._token, columns, 1))
        return receipt

    def flush(self, timeout: float | None = None) -> None:
        """Let time pass until everything sent is confirmed."""
        self._cluster.wait_for(lambda: not self._receipts, timeout)

    def read(
        self, start: int = 1, *, count: int | None = None, timeout: float | None = None
    ) -> Iterator[Message]:
        """Messages from a number on, until none came for `timeout` simulated seconds."""
        inner = self._inner
        arrived: list[Message] = []

        def on_effect(process: Process, role: Role, effect: Effect) -> None:
            if type(effect) is Deliver:
                for number, batch in effect.runs:
                    arrived.extend(m for m in messages_from(number, batch) if m.number >= start)

        process = inner.add_client("reader", Channel.GLOBAL, Channel.PAYLOAD)
        process.on_effect = on_effect
        process.start([Member(process.node, inner.configuration, inner.settings, self.id, start)])
        taken = 0
        try:
            while count is None or taken < count:
                try:
                    self._cluster.wait_for(lambda: bool(arrived), timeout)
                except WaitTimeoutError:
                    if timeout is not None:
                        return
                    raise
                taken += 1
                yield arrived.pop(0)
        finally:
            inner.world.remove(process.node)
