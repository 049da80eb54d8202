"""Connections between nodes: who dials whom, and when."""

import asyncio
from pathlib import Path

import pytest

from samcast.machine.ports import Event, Reachable, Unreachable
from samcast.runtime import dialing as module
from samcast.runtime.cluster_file import ClusterPlan
from samcast.runtime.directory import Directory
from samcast.runtime.local_cluster import LocalCluster
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
