"""Connections between nodes: who dials whom, and when."""

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from samcast.machine.ports import Event, Reachable, Unreachable
from samcast.runtime import dialing as module
from samcast.runtime import lives
from samcast.runtime.cluster_file import ClusterPlan
from samcast.runtime.directory import Directory
from samcast.runtime.local_cluster import LocalCluster, free_ports
from samcast.runtime.mesh import Mesh


class Side:
    """One node's connections, and what it hears of them."""

    def __init__(self, plan: ClusterPlan, name: str) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.refusals: list[str] = []
        self.mesh = Mesh(
            plan, plan.node(name), Directory(plan, plan.node(name).id),
            lambda source, message: None, lambda channel: False,
            lambda question: b"{}", self.events.put_nowait,
            lambda event, text, **facts: self.refusals.append(text),
        )  # fmt: skip

    async def event(self) -> Event:
        async with asyncio.timeout(10):
            return await self.events.get()


@pytest.fixture
def plan(tmp_path: Path) -> ClusterPlan:
    return LocalCluster(tmp_path / "cluster").make(2)


def test_a_node_that_comes_back_is_dialed_at_once_by_who_waits_between_two_tries(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REDIAL_S", (3600.0, 3600.0))

    async def main() -> None:
        high = Side(plan, "n2")
        await high.mesh.start()  # It dials n1 in vain, and then waits for an hour.
        await asyncio.sleep(0.1)
        for _ in range(2):
            low = Side(plan, "n1")
            await low.mesh.start()
            assert await low.event() == Reachable(2)
            assert await high.event() == Reachable(1)
            await low.mesh.stop()
            assert await high.event() == Unreachable(1)
            assert high.refusals == low.refusals == []
        await high.mesh.stop()

    asyncio.run(main())


def test_nodes_that_start_together_have_one_connection(plan: ClusterPlan) -> None:
    async def main() -> None:
        low, high = Side(plan, "n1"), Side(plan, "n2")
        await asyncio.gather(low.mesh.start(), high.mesh.start())
        assert await low.event() == Reachable(2)
        assert await high.event() == Reachable(1)
        await asyncio.sleep(0.5)
        assert low.events.empty()
        assert high.events.empty()
        assert low.mesh.connected() == high.mesh.connected() == {"nodes": 1, "clients": 0}
        await low.mesh.stop()
        await high.mesh.stop()

    asyncio.run(main())


def second_life(plan: ClusterPlan, name: str, uuid: int) -> Side:
    """Another process of a node, on another port."""
    port = free_ports(1)[0]
    nodes = tuple(
        dataclasses.replace(n, listen=f"127.0.0.1:{port}", socket=None) if n.name == name else n
        for n in plan.nodes
    )
    return with_disk(Side(dataclasses.replace(plan, nodes=nodes), name), uuid)


def with_disk(side: Side, uuid: int) -> Side:
    side.mesh.lives.uuid = uuid
    return side


async def see(true: Callable[[], object]) -> None:
    """Let the loop run until it is so."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - nobody else waits for it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize("name", ["n1", "n2"])
def test_who_comes_second_is_refused_while_the_first_answers(
    plan: ClusterPlan, name: str, is_copy: bool
) -> None:
    async def main() -> None:
        n1, n2 = (with_disk(Side(plan, n.name), n.uuid) for n in plan.nodes)
        await asyncio.gather(n1.mesh.start(), n2.mesh.start())
        first, other = (n1, n2) if name == "n1" else (n2, n1)
        assert isinstance(await first.event(), Reachable)
        assert isinstance(await other.event(), Reachable)
        uuid = 4711 if is_copy else plan.node(name).uuid
        second = second_life(plan, name, uuid)
        await second.mesh.start()
        await see(lambda: other.mesh.lives.seen() and first.mesh.lives.seen() and second.refusals)
        facts = other.mesh.lives.seen()[0]
        assert (facts["name"], facts["second_disk"]) == (name, uuid)
        assert "samcast node admit" in second.refusals[0]
        assert "ALARM: two processes run as" in other.refusals[0]
        assert "ALARM: two processes run as" in first.refusals[0]
        assert first.events.empty()
        assert other.events.empty()
        await asyncio.gather(*(side.mesh.stop() for side in (second, n1, n2)))

    asyncio.run(main())


def test_who_does_not_answer_gives_way(plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "ANSWER_S", 0.05)

    async def main() -> None:
        n1, n2 = (with_disk(Side(plan, n.name), n.uuid) for n in plan.nodes)
        monkeypatch.setattr(n2.mesh.lives, "on_session", lambda connection, message: None)
        await asyncio.gather(n1.mesh.start(), n2.mesh.start())
        assert await n1.event() == Reachable(2)
        second = second_life(plan, "n2", plan.node("n2").uuid)
        await second.mesh.start()
        assert await n1.event() == Reachable(2)
        assert await second.event() == Reachable(1)
        assert n1.mesh.lives.seen() == []
        await asyncio.gather(*(side.mesh.stop() for side in (second, n1, n2)))

    asyncio.run(main())


def test_the_listed_disk_takes_the_connection_of_a_copy(plan: ClusterPlan) -> None:
    async def main() -> None:
        n1, n2 = (with_disk(Side(plan, n.name), n.uuid) for n in plan.nodes)
        copy = second_life(plan, "n2", 4711)
        await asyncio.gather(n1.mesh.start(), copy.mesh.start())
        assert await copy.event() == Reachable(1)
        assert await n1.event() == Reachable(2)
        await n2.mesh.start()
        assert await n2.event() == Reachable(1)
        assert await n1.event() == Reachable(2)
        assert await copy.event() == Unreachable(1)
        await see(n1.mesh.lives.seen)
        assert n2.events.empty()
        await asyncio.gather(*(side.mesh.stop() for side in (copy, n1, n2)))

    asyncio.run(main())
