"""The asyncio client against real processes."""

import asyncio

import pytest

from samcast import aio
from samcast.runtime.local_cluster import LocalCluster

WAIT_S = 30.0


async def use(address: str) -> None:
    async with await aio.connect(address) as client:
        group = await client.group("orders")
        receipts = [await group.send(b"%d" % i) for i in range(100)]
        numbers = [await aio.number_of(receipt) for receipt in receipts]
        assert numbers == list(range(1, 101))
        async with client.transaction() as tx:
            tx.send(group, b"100")
            tx.send(group, b"101")
        await group.send_many([b"102", b"103"])
        await group.flush()
        bodies = [m.body async for m in group.subscribe(51, count=54)]
        assert bodies == [b"%d" % i for i in range(50, 104)]
        new = group.subscribe(None, count=1)
        waiting = asyncio.ensure_future(anext(new))
        while not waiting.done():
            await group.send(b"new")
            await asyncio.wait([waiting], timeout=0.05)
        assert waiting.result().body == b"new"


@pytest.mark.req("OPS-03")
def test_the_asyncio_client_sends_transacts_and_subscribes(cluster: LocalCluster) -> None:
    asyncio.run(asyncio.wait_for(use(cluster.address), 2 * WAIT_S))
