"""The client for asyncio programs: `samcast.aio.connect()`. The same engine, awaited."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from samcast.client import blocking
from samcast.client.engine import Engine, addresses_of
from samcast.client.finding import find_address
from samcast.client.inbox import Message, messages_from
from samcast.client.outbox import Receipt
from samcast.client.transaction import COMMIT_S

T = TypeVar("T")


async def connect(
    address: str | None = None,
    *,
    folder: str | Path = "",
    cluster: str = "",
    multicast: bool = False,
) -> "AsyncClient":
    """As `samcast.connect`."""
    addresses = addresses_of(find_address(address, folder))
    engine = await asyncio.to_thread(lambda: Engine(addresses, cluster, multicast=multicast))
    return AsyncClient(blocking.Client(engine))


async def _in_thread(call: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.to_thread(call, *arguments)


async def number_of(receipt: Receipt) -> int:
    """Wait for a message's confirmation without blocking the loop; its number."""
    await _called_by(receipt.when_done)
    return receipt.number(0)


async def _called_by(register: Callable[[Callable[[], None]], None]) -> None:
    """Wait until something that was told to call us, from any thread, does."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()

    def call() -> None:
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            loop.call_soon_threadsafe(called.set)

    register(call)
    await called.wait()


class AsyncClient:
    """A connection to a cluster, for one event loop."""

    def __init__(self, client: blocking.Client) -> None:
        self._client = client

    async def group(self, name: str) -> "AsyncGroup":
        """A group by its name; it is made if it isn't there."""
        return AsyncGroup(await _in_thread(self._client.group, name))

    async def status(self) -> dict[str, object]:
        """How the node that we are connected to is."""
        return await _in_thread(self._client.status)

    @contextlib.asynccontextmanager
    async def transaction(self, name: str = "") -> AsyncIterator["AsyncTransaction"]:
        """All-or-nothing sends: they take effect when the block is left without an error."""
        inner = await _in_thread(self._client.transaction, name)
        yield AsyncTransaction(inner)
        await _in_thread(inner.commit, COMMIT_S)

    async def close(self) -> None:
        """Wait for what is under way, then end the connection."""
        await _in_thread(self._client.close)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await _in_thread(self._client.__exit__, kind, error, trace)


class AsyncTransaction:
    """What is sent in it takes effect together."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def send(self, group: "AsyncGroup", body: bytes | str) -> None:
        """Add a message."""
        self._inner.send(group.inner, body)


class AsyncGroup:
    """A group: everybody who reads it sees the same messages under the same numbers."""

    def __init__(self, group: blocking.Group) -> None:
        self.inner = group
        self.name = group.name

    async def send(
        self, body: bytes | str, key: bytes | str = b"", headers: bytes | str = b""
    ) -> Receipt:
        """Send a message; waits only for room. `number_of(receipt)` waits for the confirmation."""
        if self.inner.has_room:
            return self.inner.send(body, key, headers)
        return await _in_thread(self.inner.send, body, key, headers)

    async def send_many(self, bodies: Iterable[bytes | str]) -> Receipt | None:
        """Send many messages; the receipt of the last one."""
        return await _in_thread(self.inner.send_many, bodies)

    async def flush(self) -> None:
        """Wait until everything sent is confirmed."""
        await _in_thread(self.inner.flush)

    async def head(self) -> int:
        """The number of the newest message."""
        return await _in_thread(self.inner.head)

    async def subscribe(
        self, start: blocking.Start = blocking.OLDEST, *, count: int | None = None
    ) -> AsyncIterator[Message]:
        """Messages from number `start` on ("oldest": all that there are; None: only new ones), for
        ever or so many."""
        blocking.check_count(count)
        engine = self.inner.engine
        first = await _in_thread(self.inner.first_of, start)
        at, inbox = await _on(engine, engine.open_reader(self.inner.id, first))
        taken = 0
        try:
            while count is None or taken < count:
                await _called_by(inbox.when_arrived)
                for number_first, batch in inbox.take_now() or ():
                    for message in messages_from(number_first, batch):
                        if message.number >= inbox.first and (count is None or taken < count):
                            taken += 1
                            yield message
                engine.wake(inbox.ask_for_more)
        finally:
            if not engine.is_closed:
                await _on(engine, engine.close_reader(at))


async def _on(engine: Engine, work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(engine.start(work))
