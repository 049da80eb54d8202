"""The thread behind a client: its own event loop, so that heartbeats and repeats don't depend on
what the user's threads do.
"""

import asyncio
import concurrent.futures
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from samcast.client import leaving
from samcast.client.inbox import Inbox
from samcast.client.leaving import Left
from samcast.client.link import UNIX, Address, Link
from samcast.client.outbox import CLIENT_THREAD, LOG, Outbox, all_of
from samcast.errors import (
    ClientError,
    ClientFailedError,
    ConfigError,
    NotConnectedError,
    RefusedError,
    SamcastError,
    WaitTimeoutError,
)
from samcast.group.asking import Answered, Asker, CheckpointsAsker, HeadAsker, NamesAsker, Proposer
from samcast.group.member import Member
from samcast.group.owner import Owner
from samcast.group.sender import Reconnected, Sender
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Channel, Event, NodeId, Received
from samcast.wire.batch import Batch
from samcast.wire.control import Control
from samcast.wire.group import AnyRequest, Head, Outcome
from samcast.wire.names import Names
from samcast.wire.order import Configuration
from samcast.wire.retention import Checkpoints
from samcast.wire.session import PlanRequest, StatusRequest, TraceRequest

T = TypeVar("T")
WATCH_S = 0.5


class Chance:
    """Nonces from the operating system."""

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        return secrets.randbelow(bound)


def wall_ms() -> int:
    """What the clock of roles, which only goes forward, lacks to be the wall's."""
    return round((time.time() - time.monotonic()) * 1000)


def addresses_of(text: str) -> list[Address]:
    """`host:port,unix:PATH` as a list; a `ConfigError` says what is wrong with it."""
    if not isinstance(text, str):
        raise ConfigError(f"an address is a str such as 'host:port', not {text!r}")
    found: list[Address] = []
    for part in text.split(","):
        if part.strip().startswith(UNIX) and len(part.strip()) > len(UNIX):
            found.append((part.strip(), 0))
            continue
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise ConfigError(
                f"{part.strip()!r} is no address; write host:port (1 to 65535) or unix:PATH, or"
                " several with commas between"
            )
        found.append((host.strip("[]"), int(port)))
    return found


class Engine:
    """One connection to a cluster with everything that runs over it. Any thread may call it."""

    def __init__(
        self, addresses: list[Address], cluster: str = "", *, multicast: bool = False
    ) -> None:
        self._pid = os.getpid()
        self._reading = GroupSettings(is_one_step=True)
        # Connections lose nothing while they last, so repeats are for what went wrong elsewhere.
        self._sending = GroupSettings(retry_ms=500, retry_max_ms=4000)
        self._loop = uvloop.new_event_loop()
        self._link = Link(addresses, cluster, multicast)
        self._link.is_alone = self._is_alone
        self._link.on_heard = self._on_heard
        self._link.host.on_bug = self._fail
        self._calls: set[asyncio.Task[Any]] = set()  # that somebody waits for
        self._outboxes: list[Outbox] = []
        self._senders: list[int] = []  # where their roles stand
        self._inboxes: dict[int, Inbox] = {}
        self._is_closed = False
        self._problem: ClientError | None = None  # why nothing goes on, once that is so
        self.on_closed: list[Callable[[], None]] = []  # for who waits for an outcome
        self._watching: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=CLIENT_THREAD, daemon=True)
        self._thread.start()
        leaving.enter(self)
        try:
            self.call(self._start())
        except BaseException:
            self.close()
            raise

    # life

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._on_loop_error)
        is_over = False
        while not is_over:
            try:
                self._loop.run_forever()
                is_over = True
            except BaseException as error:  # noqa: BLE001 - told to all who use this client
                self._fail(error)
        # Here, not in the thread that calls `close`: whatever this waits for, no user does.
        self._loop.close()

    async def _start(self) -> None:
        await self._link.start()
        self._link.on_connected.append(self._on_connected)
        self._watching = asyncio.create_task(self._watch())
        self._watching.add_done_callback(self._link.on_task_done)

    def close(self) -> None:
        """End the connection; whatever isn't confirmed by now hears so."""
        if self._is_closed or self._pid != os.getpid():
            return
        if threading.current_thread() is self._thread:  # In a callback: it can't end its own loop.
            threading.Thread(target=self.close, name="samcast-closing").start()
            return
        self._is_closed = True
        problem = self._problem or NotConnectedError("this client is closed; connect again")
        self._problem = problem
        for outbox in self._outboxes:
            outbox.stop(problem)
        for inbox in self._inboxes.values():
            inbox.stop(problem)
        for call in self.on_closed:
            call()
        future = asyncio.run_coroutine_threadsafe(self._stop(problem), self._loop)
        concurrent.futures.wait([future], timeout=2)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=2)
        leaving.left(self)

    async def _stop(self, problem: ClientError) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._tell_all(problem)
        await self._link.stop()

    def _tell_all(self, problem: ClientError) -> None:
        """Whoever waits for anything of the client's loop waits no more."""
        for call in list(self._calls):
            call.cancel()
        self._link.tell_all(problem)

    def _fail(self, error: BaseException) -> None:
        """In the client's loop: what must never happen has. A client that went on would be half
        alive, so it ends, and all who use it hear why."""
        if self._problem is not None:
            LOG.warning("a client that was over met this as well", exc_info=error)
            return
        problem = self._problem = ClientFailedError(
            f"this client has stopped, by a bug of Samcast: {error!r}; what was not confirmed may"
            " or may not be in its group: look, and connect again"
        )
        problem.__cause__ = error
        LOG.error(str(problem), exc_info=error)
        self._link.give_up()
        for outbox in self._outboxes:
            outbox.stop(problem)
        for inbox in self._inboxes.values():
            inbox.stop(problem)
        self._tell_all(problem)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What was called in the loop has failed, and nobody waits for it."""
        error = context.get("exception")
        if isinstance(error, SamcastError):
            return  # the answer to a call that its caller has given up
        if error is None or isinstance(error, OSError):  # a connection's trouble
            loop.default_exception_handler(context)
        else:
            self._fail(error)

    def disown(self, error: ClientError) -> None:
        """In a forked child, which has neither our thread nor our connection."""
        self._is_closed = True
        self._problem = error
        for outbox in self._outboxes:
            outbox.disown(error)
        for inbox in self._inboxes.values():
            inbox.disown(error)

    @property
    def identity(self) -> str:
        """Of the cluster: its name, and what tells it from others of that name."""
        return f"{self._link.cluster}/{self._link.origin}"

    def check(self) -> None:
        """Refuse to work in a process that has inherited us, or after `close`."""
        if self._pid != os.getpid():
            raise NotConnectedError(
                "this client was made before a fork; connect again in the child process"
            )
        if self._problem is not None:
            raise self._problem

    def _on_connected(self) -> None:
        for inbox in self._inboxes.values():
            inbox.restart()
        for at in self._senders:
            self._link.host.post(at, Reconnected())

    def _on_heard(self, source: NodeId, message: Control | Batch) -> None:
        """Members that have caught up take what is multicast; to others it would be a gap."""
        for at, inbox in self._inboxes.items():
            if inbox.is_live:
                self._link.host.post(at, Received(source, message))

    def _is_alone(self) -> bool:
        return sum(outbox.under_way for outbox in self._outboxes) <= 1

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            for inbox in self._inboxes.values():
                inbox.see_whether_stuck()

    # from other threads

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Have something done in the client's loop, and wait for it."""
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except SamcastError as error:
            # How the loop got there helps no user.
            raise error.with_traceback(None) from error.__cause__
        except TimeoutError:
            future.cancel()
            raise WaitTimeoutError(
                f"no answer within {timeout_s} s: are enough nodes up (`samcast doctor`)?"
            ) from None
        except BaseException:  # Also Ctrl-C: nobody waits for it any more.
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Have something done in the client's loop."""
        guarded = self._guarded(work)
        try:
            self.check()
            return asyncio.run_coroutine_threadsafe(guarded, self._loop)
        except BaseException:
            guarded.close()
            work.close()
            raise

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """The same, but over when the client is."""
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            if self._problem is not None:  # since it was asked for
                work.close()
                raise self._problem
            return await work
        except asyncio.CancelledError:
            if self._problem is not None:
                raise self._problem from self._problem.__cause__
            raise
        finally:
            self._calls.discard(call)

    def wake(self, call: Callable[[], None]) -> None:
        """The same for a plain function whose result nobody needs."""
        self.check()
        self._loop.call_soon_threadsafe(call)

    def flush(self, timeout_s: float) -> None:
        """Wait until all that any sender has sent has an outcome; all errors that there are."""
        left = self.settle(timeout_s)
        if left:
            raise all_of(left.all_errors(timeout_s))

    def settle(self, timeout_s: float) -> Left:
        """The same; what there is to say of it."""
        limit = time.monotonic() + timeout_s
        outboxes = list(self._outboxes)
        for outbox in outboxes:
            outbox.settle(max(0.0, limit - time.monotonic()))
        # Only then: what comes in while others are waited for counts.
        unconfirmed = sum(outbox.unconfirmed for outbox in outboxes)
        return Left(unconfirmed, [e for outbox in outboxes for e in outbox.take_errors()])

    @property
    def is_connected(self) -> bool:
        """Whether a node answers just now."""
        return self._link.is_connected

    @property
    def is_live(self) -> bool:
        """Whether all our readers have caught up and hear the multicast group."""
        return all(inbox.is_live for inbox in self._inboxes.values())

    @property
    def listened(self) -> dict[str, int]:
        """What was heard of the group: datagrams, and questions that had to be asked."""
        listener = self._link.listener
        if listener is None:
            return {}
        return {"received": listener.received, "asked": listener.asked}

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    # in the client's loop

    async def status(self) -> bytes:
        """How the node that we are connected to is."""
        return await self._link.ask(StatusRequest())

    async def plan(self) -> str:
        """How the cluster began, as a cluster file."""
        return (await self._link.ask(PlanRequest())).decode()

    async def trace(self, group: int, number: int) -> bytes:
        """What that node still knows of the way of a message."""
        return await self._link.ask(TraceRequest(group, number))

    @property
    def peers(self) -> list[tuple[str, str, int]]:
        """Name, host and port of each node."""
        return [(peer.name, peer.host, peer.port) for peer in self._link.peers]

    @property
    def node_names(self) -> dict[int, str]:
        """The names of all nodes by their ids."""
        return {peer.node: peer.name for peer in self._link.peers}

    async def _ask(self, make: Callable[[Link], Asker]) -> Any:
        link = self._link
        done: asyncio.Future[Any] = self._loop.create_future()

        def on_effect(effect: Any) -> None:
            if isinstance(effect, Answered) and not done.done():
                done.set_result(effect.answer)

        at = link.add(make(link), on_effect)
        try:
            return await done
        finally:
            link.remove(at)

    async def propose(self, request: AnyRequest) -> Outcome:
        """Have something ordered; its outcome."""
        nonce = 1 + secrets.randbelow(2**62)
        outcome: Outcome = await self._ask(
            lambda link: Proposer(link.node, link.servers, nonce, request)
        )
        return outcome

    async def head(self, group: int) -> int:
        """The newest number of a group, from committed state."""
        head: Head = await self._ask(lambda link: HeadAsker(link.node, link.servers, group))
        return head.number

    async def names(self, scope: int, above: bytes) -> Names:
        """Some of those who have a name in a group, or in the cell, from committed state."""
        found: Names = await self._ask(
            lambda link: NamesAsker(link.node, link.servers, scope, above)
        )
        return found

    async def checkpoints(self, group: int) -> Checkpoints:
        """What there is of a group, from committed state."""
        found: Checkpoints = await self._ask(
            lambda link: CheckpointsAsker(link.node, link.servers, group)
        )
        return found

    async def open_sender(self, group: int, name: str) -> Outbox:
        """A sender of a group; a named one goes on where its last life stopped."""
        link = self._link
        sender = Sender(
            link.node, link.servers, self._sending, Chance(), group, name, channel=self._channel,
            clock_ms=wall_ms(),
        )  # fmt: skip
        outbox = Outbox(sender, self.wake)
        at = link.add(sender, outbox.on_effect)
        outbox.post = lambda event: link.host.post(at, event)
        self._outboxes.append(outbox)
        self._senders.append(at)
        return outbox

    @property
    def _channel(self) -> Channel:
        """Where there is multicast, payloads are for members, too."""
        return Channel.PAYLOAD if self._link.has_multicast else Channel.DATA

    async def open_reader(self, group: int, number_next: int) -> tuple[int, Inbox]:
        """A member of a group from a number on; 0: from the oldest message there is."""
        link = self._link
        is_oldest = number_next == 0
        # By the order: a server that is behind, or has not let go yet, would give more.
        first = (await self.checkpoints(group)).collected + 1 if is_oldest else number_next
        member = Member(link.node, link.servers, self._reading, group, first, is_oldest)
        listener = link.listener
        inbox = Inbox(
            member,
            lambda follow: link.send(link.data_node(), follow),
            lambda: listener is not None and listener.is_hearing,
        )
        at = link.add(member, inbox.on_effect)
        self._inboxes[at] = inbox
        inbox.restart()
        return at, inbox

    @property
    def configuration(self) -> Configuration:
        """Who serves, as our node told us."""
        return self._link.servers

    @property
    def data_node(self) -> NodeId:
        """Who is best asked for payloads."""
        return self._link.data_node()

    async def add_role(self, role: Any, on_effect: Callable[[Any], None]) -> int:
        """Run a role beside the others; where it stands."""
        return self._link.add(role, on_effect)

    async def remove_role(self, at: int) -> None:
        """It is done."""
        self._link.remove(at)

    def post(self, at: int, event: Event) -> None:
        """Tell a role something, from any thread."""
        self.wake(lambda: self._link.host.post(at, event))

    async def close_reader(self, at: int) -> None:
        """A reader is done."""
        self._link.remove(at)
        inbox = self._inboxes.pop(at, None)
        if inbox is not None:
            inbox.stop()

    async def open_owner(
        self, name: str, on_effect: Callable[[Any], None]
    ) -> tuple[Owner, Callable[..., None]]:
        """An owner of transactions, without a name one for this client alone; and what to call with
        its events."""
        link = self._link
        owner = Owner(
            link.node, link.servers, self._sending, Chance(), name, self._channel, wall_ms()
        )
        at = link.add(owner, on_effect)
        return owner, lambda event: link.host.post(at, event)


def refused(what: str, outcome: Outcome) -> ClientError:
    """An outcome that isn't what was asked for."""
    return RefusedError(f"{what}: the cluster answered {outcome.kind.name.lower()}")
