"""A node: one process with one event loop, its disks, its connections, and any set of roles."""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sys
import traceback
from asyncio import create_task
from typing import TYPE_CHECKING, Any

import uvloop

from samcast.errors import DiskError
from samcast.group.checkpoint_server import CheckpointServer
from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.data_server import DataServer
from samcast.group.storage import (
    BatchKey,
    DropBatch,
    DropCollected,
    Filled,
    Freed,
    Rotted,
    SendRows,
    SendStored,
    StoreBatch,
    StoreMarks,
)
from samcast.machine.ports import (
    Channel,
    Configured,
    Effect,
    Introduce,
    Reachable,
    Role,
    Store,
    Stored,
    Unreachable,
)
from samcast.runtime.chance import SystemChance
from samcast.runtime.checkpointing import Checkpointing
from samcast.runtime.cluster_file import ClusterPlan, host_and_port
from samcast.runtime.datagrams import datagrams_of
from samcast.runtime.directory import Directory
from samcast.runtime.disks import Disks
from samcast.runtime.host import Host
from samcast.runtime.log import Form, Log
from samcast.runtime.memory import prepare_start, settle
from samcast.runtime.mesh import Mesh
from samcast.runtime.metrics_page import MetricsPage
from samcast.runtime.scrub import Scrub
from samcast.runtime.serving import Serving
from samcast.runtime.telling import Telling
from samcast.runtime.tidying import Tidying
from samcast.runtime.trail import Trail
from samcast.runtime.warnings import Warnings
from samcast.wire.order import EPOCH_NONE, Epoch

if TYPE_CHECKING:
    from samcast.runtime.metrics import Metrics

LOOK_S = 1.0
# For votes and the order, when payloads have filled the disk.
ROOM_RESERVED_BYTES = 64 * 1024 * 1024
ROOM_UNCHECKED_BYTES = 4 * 1024 * 1024  # written before we look again; others write here too
SWITCH_S = 0.0005  # a sync that is done doesn't wait long for a busy loop to take notice
FAREWELL_S = 3.0  # a node that was removed stays so long, to tell others
EXIT_DISK = 3
EXIT_BUG = 4


class Node:
    """One node of a cluster, from its folder to its sockets."""

    def __init__(self, plan: ClusterPlan, name: str, form: Form = Form.PLAIN) -> None:
        self._plan = plan
        self._say = Log(name, form).say
        self._node = plan.node(name)
        self._folder = self._node.folder
        self._host = Host(self._node.id, self, self._apply)
        self._host.on_bug = self._on_bug
        self._host.on_warn = Warnings(self._say).on_warn
        self._host.trail = self._trail = Trail()
        self._directory = Directory(plan, self._node.id)
        self._telling = Telling(plan, self._node, self._directory, self._host, self._trail)
        self._mesh = Mesh(
            plan, self._node, self._directory, self._host.deliver, self._host.is_on,
            self._telling.answer, self._on_connection, self._say, datagrams_of(plan, self._node),
        )  # fmt: skip
        self._mesh.on_removed = self._on_removed
        self._removed_at = 0.0
        self._telling.mesh = self._mesh
        self._disks = Disks(self._node, self._say, plan.path)
        self._serving: Serving | None = None
        self._commit_server: CommitServer | None = None
        self._data_server: DataServer | None = None
        self._checkpointing: Checkpointing | None = None
        self._data_at = self._checkpoint_at = -1
        self._metrics: Metrics | None = None
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._is_full = False
        self._leading: Epoch = EPOCH_NONE
        self._unchecked_bytes = 0

    # life

    async def run(self) -> int:
        """Serve until told to stop; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        try:
            await self._serve()
        finally:
            # A step of tidying that nobody waits for any more may still write: the next process
            # must not get the disk before it has ended.
            await loop.shutdown_default_executor()
            self._disks.close()
        return self._exit_code

    async def _serve(self) -> None:
        self._open_disks()
        self._mesh.lives.uuid = self._telling.uuid
        self._start_roles()
        settle()
        page = self._metrics_page()
        if page is not None:
            await page.start()  # first: who finds the node listening finds its numbers too
        await self._mesh.start()
        host, port = self._node.listens_on
        self._say("listening", f"{self._node.name} listens on {host}:{port}", port=port)
        scrub = self._telling.scrub = Scrub(self._disks.data, self._on_rotted)
        tidying = Tidying(self._disks.data, self._on_bug)
        watching = [create_task(work) for work in (self._watch(), scrub.run(), tidying.run())]
        for task in watching:
            task.add_done_callback(self._on_task_done)
        try:
            await self._stopped.wait()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            self._host.stop()
            if self._checkpointing is not None:
                await self._checkpointing.stop()
            if page is not None:
                page.stop()
            await self._mesh.stop()

    def _metrics_page(self) -> MetricsPage | None:
        if not self._node.metrics:
            return None
        return MetricsPage(host_and_port(self._node.metrics), self._metrics_text)

    def _metrics_text(self) -> bytes:
        if self._metrics is None:
            from samcast.runtime.metrics import Metrics  # a start needn't wait for it

            self._metrics = Metrics(self._telling, self._disks.data, self._disks.devices)
        return self._metrics.text()

    def _open_disks(self) -> None:
        found = self._disks.open()
        self._directory.keep_in(self._folder)
        self._serving = Serving(
            self._disks.data, self.send, self._mesh.under_way, self._on_rotted,
            lambda: self._mesh.readers.share, self._mesh.may_begin,
        )  # fmt: skip
        self._telling.uuid = found.uuid
        settings, initial = self._plan.settings, self._plan.configuration()
        if "commit" in self._node.roles:
            self._commit_server = self._telling.commit = CommitServer(
                self._node.id, initial, settings, found.order, SystemChance()
            )
        if "checkpoint" in self._node.roles:
            self._checkpointing = Checkpointing(
                CheckpointServer(self._node.id, found.uuid, initial, settings),
                self._folder / "checkpoints",
                f"{self._node.host}:{self._node.port}",
                lambda event: self._host.post(self._checkpoint_at, event),
                self.send,
                self._say,
                self._has_fold,
            )
            self._telling.fold_problems = self._checkpointing.problems
        if "data" in self._node.roles:
            self._data_server = self._telling.data = DataServer(
                self._node.id, initial, settings, found.data
            )

    def _start_roles(self) -> None:
        roles: list[Role] = []
        channels = [Channel.GLOBAL]
        if self._commit_server is not None:
            roles.append(self._commit_server)
            channels.append(Channel.COMMIT)
        if self._data_server is not None:
            self._data_at = len(roles)
            roles.append(self._data_server)
            channels += [Channel.DATA, Channel.PAYLOAD]
        if self._checkpointing is not None:
            self._checkpoint_at = len(roles)
            roles.append(self._checkpointing.role)
        self._disks.start(
            asyncio.get_running_loop(),
            lambda token: self._host.post(0, Stored(token)),
            self._on_data_stored,
            self._on_bug,
        )
        self._host.start(roles, channels)

    def _on_data_stored(self, token: int) -> None:
        self._trail.stored(token)
        self._host.post(self._data_at, Stored(token))

    def _on_connection(self, event: Reachable | Unreachable) -> None:
        name = self._directory.name_of(event.node)
        if isinstance(event, Reachable):
            self._say("connected", f"connected with {name}", peer=name)
        else:
            self._say("disconnected", f"lost the connection with {name}", peer=name)
        if self._commit_server is not None:
            self._host.post(0, event)

    def _on_bug(self, error: BaseException) -> None:
        """A role that broke an assumption must not go on; nor must anybody when nobody knows what
        is on the disk. Stop at once, and start from what is there."""
        if isinstance(error, OSError):
            mend = "" if isinstance(error, DiskError) else ". Mend the disk, then start it again"
            self._say("disk-failed", f"the disk failed: {error}; this node stops{mend}")
            os._exit(EXIT_DISK)
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exception(error)
        self._say("bug", "this is a bug of Samcast; the node stops, and starts again from its disk")
        os._exit(EXIT_BUG)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """What runs beside the roles ends only when the node does."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_bug(error)

    async def _watch(self) -> None:
        while True:
            self._check_room()
            self._disks.order.look_ahead()
            self._disks.data.look()
            self._see_who_leads()
            self._see_who_serves()
            if self._checkpointing is not None:
                await self._checkpointing.watch(self._has_folds())
            await asyncio.sleep(LOOK_S)

    def _has_folds(self) -> bool:
        """Whether some group is to have checkpoints."""
        core = self._core()
        # Who does nothing else can't tell, and is there for just that.
        return core is None or any(group.keep.fold for group in core.retained.values())

    def _has_fold(self, group: int) -> bool:
        """Whether this one is."""
        core = self._core()
        return core is None or (group in core.retained and bool(core.retained[group].keep.fold))

    def _core(self) -> Core | None:
        if self._commit_server is not None:
            return self._commit_server.core
        return self._data_server.follower.core if self._data_server is not None else None

    def _see_who_serves(self) -> None:
        """By the order; those who don't fold it are told by others."""
        if self._commit_server is not None:
            core, configuration = self._commit_server.core, self._commit_server.configuration
        elif self._data_server is not None:
            core = self._data_server.follower.core
            configuration = self._data_server.follower.configuration
        else:
            core, configuration = None, self._directory.configuration
        if core is not None and self._directory.learn_ordered(configuration, core.places):
            self._mesh.follow()
            names = ", ".join(peer.name for peer in self._directory.peers)
            text = f"configuration {configuration.number}: {names}"
            self._say("configuration", text, configuration=configuration.number)
        if self._directory.is_removed(self._node.id):
            number = self._directory.configuration.number
            self._on_removed(f"configuration {number} doesn't list this node")

    def _on_removed(self, why: str) -> None:
        """Of no more use; but the others may still have to hear from us that this is so."""
        now = asyncio.get_running_loop().time()
        if not self._removed_at:
            self._removed_at = now
            self._mesh.retire()
            self._say(
                "removed",
                f"{self._node.name} is not of this cluster any more ({why}) and stops; its folder"
                " may go, and `samcast node prepare` makes a new node",
            )
        elif now - self._removed_at > FAREWELL_S:
            self._stopped.set()

    def _see_who_leads(self) -> None:
        election = self._commit_server.election if self._commit_server is not None else None
        if election is None or election.leader_epoch == self._leading:
            return
        self._leading = epoch = election.leader_epoch
        name = self._directory.name_of(epoch[1])
        text = f"{name} numbers messages, epoch {epoch[0]}"
        self._say("leader", text, leader=name, epoch=epoch[0])

    def _check_room(self) -> None:
        """A full disk takes no payloads, but goes on voting from what is reserved."""
        self._unchecked_bytes = 0
        free = shutil.disk_usage(self._folder).free
        is_full = free < ROOM_RESERVED_BYTES * (1.5 if self._is_full else 1)
        is_full |= self._disks.order.is_short  # what is left is for votes
        if is_full != self._is_full and self._data_at >= 0:
            self._is_full = is_full
            self._host.post(self._data_at, Filled() if is_full else Freed())
            self._say(
                "disk-full" if is_full else "disk-has-room",
                f"the disk has {free >> 20} MiB left: payloads are"
                f" {'refused' if is_full else 'taken again'}",
                free_bytes=free,
            )

    def _on_rotted(self, key: BatchKey) -> None:
        self._say(
            "payload-rotten",
            f"a payload of group {key[0]} has rotted on the disk; another node's copy replaces it",
            group=key[0],
        )
        self._host.post(self._data_at, Rotted(key))

    # effects

    def _apply(self, at: int, effect: Effect) -> None:
        if isinstance(effect, Store):
            is_data = type(effect) is StoreBatch or type(effect) is StoreMarks
            store = self._disks.data if is_data else self._disks.order
            store.store(effect)
            if type(effect) is StoreBatch:
                self._unchecked_bytes += len(effect.batch.columns)
                if self._unchecked_bytes > ROOM_UNCHECKED_BYTES:
                    self._check_room()
        elif type(effect) is SendStored:
            assert self._serving is not None
            self._serving.send_stored(effect)
        elif type(effect) is SendRows:
            assert self._serving is not None
            self._serving.send_rows(effect)
        elif isinstance(effect, DropBatch | DropCollected):
            keys = (effect.key,) if isinstance(effect, DropBatch) else effect.keys
            self._disks.data.forget(keys)
        elif type(effect) is Introduce:
            self._mesh.introduce(effect.places)
        elif type(effect) is Configured:
            asyncio.get_running_loop().call_soon(self._see_who_serves)
        elif self._checkpointing is not None:
            self._checkpointing.apply(effect)

    def send(self, to: int, message: Any) -> None:
        """To another node, or to a client."""
        if to == self._node.id:
            self._host.deliver(to, message)
        else:
            self._mesh.send(to, message)

    def multicast(self, channel: Channel, message: Any) -> None:
        """To all others of a channel."""
        self._mesh.multicast(channel, message)

    def flush(self) -> None:
        """Have what was sent leave now."""
        self._mesh.flush()


def allow_files() -> None:
    """As many connections as the system lets us have; its first offer is for small programs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run_node(plan: ClusterPlan, name: str, form: Form = Form.PLAIN) -> int:
    """Run a node in this process until it is told to stop."""

    async def main() -> int:
        return await Node(plan, name, form).run()

    sys.setswitchinterval(SWITCH_S)
    allow_files()
    prepare_start()
    return uvloop.run(main())
