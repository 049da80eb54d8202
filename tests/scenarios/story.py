"""Plays a story: cluster, commands, and behind `----` the sentences that must come out.

# For the reader. `S1 claim 3` or `S1 figure 2` in the head says what of the source it shows.
req: GRP-02 GRP-03
cluster data=3 commit=3 members=2 k_data=2 k_commit=2    (all of `cast.Plan`, and settings)
client alice [named] [on PROCESS] [through ENTRY]        (others begin when they first send)
    owner tina                                               (of transactions)
show reports delivers                                    (kinds of sentences: `narrator.KINDS`)

alice sends a b, c                                       (two batches)
tina transacts orders a, stock b                         (all or nothing, over groups)
drop Commit [from NAMES] [to NAMES] [once|twice]         (a message class of `wire`, or Batch)
hold CommitSubmit to server-2                            (the same, until `release`)
cut server-1 alice | rest                                (both ways)
mend                                                     (ends all drops and cuts)
crash NAME, restart NAME, wipe NAME                      (a wiped disk is another disk)
slow NAME                                                (its disk takes 100 times as long)
run 50ms, run until quiet
----
server-1 reports a b                                     (up to the next empty line)
"""

import re
from collections.abc import Callable
from typing import get_args

from samcast.wire.batch import Batch
from samcast.wire.group import AnyControl
from tests.scenarios.cast import Cast, Fault, Plan, SenderPlan
from tests.scenarios.narrator import KINDS

RULE = "----"
NOTHING = "nothing"
SLOW = 100
MESSAGES: dict[str, type] = {t.__name__: t for t in (*get_args(AnyControl), Batch)}
TIMES = {"": 10**9, "once": 1, "twice": 2}


class Story:
    """One story, told from its first line to its last."""

    def __init__(self) -> None:
        self._plan = Plan()
        self._shown: set[str] = set()
        self._cast: Cast | None = None
        self._links: list[tuple[int, int]] = []
        who, some = r"([\w-]+)", r"([\w -]+?)"
        self._commands: list[tuple[str, Callable[..., None]]] = [
            (r"req: .*", self._nothing),
            (r"cluster (.*)", self._cluster),
            (rf"client {who}( named)?(?: on {who})?(?: through {who})?", self._client),
            (rf"owner {who}", self._plan.owners.append),
            (r"show (.*)", self._show),
            (rf"{who} sends (.*)", self._send),
            (rf"{who} transacts (.*)", self._transact),
            (rf"(drop|hold) {who}(?: from {some})?(?: to {some})?(?: (once|twice))?", self._strike),
            (r"release", self._release),
            (rf"cut {some} \| {some}", self._cut),
            (r"double", self._double),
            (r"mend", self._mend),
            (rf"crash {who}", self._crash),
            (rf"restart {who}", self._restart),
            (rf"wipe {who}", self._wipe),
            (rf"slow {who}", self._slow),
            (r"run (\d+)ms", lambda time: self._on_stage().run(int(time))),
            (r"run until quiet", lambda: self._on_stage().run_until_quiet()),
        ]

    def obey(self, line: str) -> None:
        """Do what one line says."""
        if not line or line.startswith("#"):
            return
        for pattern, command in self._commands:
            found = re.fullmatch(pattern, line)
            if found:
                command(*(group or "" for group in found.groups()))
                return
        raise ValueError(f"no such command: {line}")

    def told(self) -> list[str]:
        """What happened since it was asked last."""
        narrator = self._on_stage().narrator
        lines, narrator.lines = narrator.lines, []
        return lines or [NOTHING]

    def _on_stage(self) -> Cast:
        """The cast; it comes on when something shall happen for the first time."""
        if self._cast is None:
            self._cast = Cast(self._plan)
            self._cast.narrator.shown = self._shown
        return self._cast

    # before it begins

    def _nothing(self) -> None:
        pass

    def _cluster(self, text: str) -> None:
        for word in text.split():
            name, _, value = word.partition("=")
            self._plan.set(name, value)

    def _client(self, name: str, named: str, host: str, entry: str) -> None:
        self._plan.senders.append(SenderPlan(name, bool(named), host, entry))

    def _show(self, text: str) -> None:
        unknown = [kind for kind in text.split() if kind not in KINDS]
        if unknown:
            raise ValueError(f"no such kind of sentence: {unknown[0]}; see narrator.KINDS")
        self._shown.clear()
        self._shown.update(text.split())

    # clients

    def _send(self, name: str, text: str) -> None:
        sender = self._on_stage().sender(name)
        for batch in text.split(","):
            sender.send(batch.split())

    def _transact(self, name: str, text: str) -> None:
        parts = [part.split() for part in text.split(",")]
        groups = self._plan.groups
        owner = self._on_stage().owner(name)
        owner.transact([(1 + groups.index(group), label) for group, label in parts])

    # the network

    def _strike(self, verb: str, kind: str, sources: str, targets: str, times: str) -> None:
        cast = self._on_stage()
        if kind not in MESSAGES:
            raise ValueError(f"no such message: {kind}")
        fault = Fault(
            MESSAGES[kind], cast.nodes(sources), cast.nodes(targets), TIMES[times], verb == "hold"
        )
        cast.world.network.faults.append(fault)

    def _release(self) -> None:
        network = self._on_stage().world.network
        holds = [fault for fault in network.faults if fault.is_hold]
        network.faults = [fault for fault in network.faults if not fault.is_hold]
        for fault in holds:
            for source, target, message in fault.held:
                network.send(source, (target,), message)

    def _cut(self, ones: str, others: str) -> None:
        cast = self._on_stage()
        some = sorted(cast.nodes(ones))
        rest = [node for node in cast.world.processes if node not in some]
        many = rest if others == "rest" else sorted(cast.nodes(others))
        network = cast.world.network
        self._links += network.cut(some, many) + network.cut(many, some)

    def _double(self) -> None:
        self._on_stage().world.network.duplication = 1.0

    def _mend(self) -> None:
        network = self._on_stage().world.network
        network.duplication = 0.0
        network.mend(self._links)
        self._links.clear()
        network.faults = [fault for fault in network.faults if fault.is_hold]

    # processes

    def _crash(self, name: str) -> None:
        self._on_stage().process(name).stop()

    def _restart(self, name: str) -> None:
        self._on_stage().start(name)

    def _wipe(self, name: str) -> None:
        disk = self._on_stage().process(name).disk
        assert disk is not None
        disk.wipe()

    def _slow(self, name: str) -> None:
        disk = self._on_stage().process(name).disk
        assert disk is not None
        disk.slow_down(SLOW)


def retold(text: str) -> str:
    """The story with what really happens in the place of what was expected."""
    story, lines, is_expected = Story(), [], False
    for place, line in enumerate(text.splitlines(), 1):
        if is_expected:
            if line:
                continue
            is_expected = False
        lines.append(line)
        if line == RULE:
            lines += story.told()
            is_expected = True
            continue
        try:
            story.obey(line)
        except ValueError as error:
            raise ValueError(f"line {place}: {error}") from error
    return "\n".join(lines) + "\n"
