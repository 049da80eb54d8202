"""Nodes that die at each step of the protocol: row 17 of the fault catalogue."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from samcast.client.leading import sequencer_of
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import MULTICAST, running
from tests.real.killed_at import launcher
from tests.real.striking import NODES, judged, pause

Step = tuple[str, str]  # what, when

# Of the sequencer's node, in the order in which a message meets them.
SEQUENCING: list[Step] = [
    ("StoreBatch", "before"), ("StoreBatch", "after"), ("DataReport", "before"),
    ("CommitSubmit", "before"), ("CommitSubmit", "between"), ("CommitSubmit", "after"),
    ("StoreOrder", "before"), ("StoreOrder", "after"), ("CommitAck", "before"),
    ("Commit", "before"), ("Commit", "between"), ("Commit", "after"),
    ("Answers", "before"), ("Answers", "after"), ("StoreMarks", "before"), ("Heartbeat", "between"),
]  # fmt: skip
# Of whoever is there when the sequencer has died; the first of them that comes to it.
ELECTING: list[Step] = [
    ("PreVote", "after"), ("PreVoteReply", "before"), ("Seal", "before"), ("Seal", "between"),
    ("Seal", "after"), ("StoreVote", "before"), ("StoreVote", "after"), ("Promise", "before"),
    ("Promise", "after"), ("Start", "before"), ("Start", "between"), ("Start", "after"),
    ("StartReply", "before"), ("StartReply", "after"),
]  # fmt: skip
# On multicast clients reach all through one node, which answers them, and may not be this one.
STEPS = [step for step in SEQUENCING if not (MULTICAST and step[0] == "Answers")]
STEP_S = 10.0


class Deaths:
    """A cluster whose nodes die where they are told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = LocalCluster(folder / "cluster")
        self.cluster.make(3, multicast=MULTICAST)
        for name in NODES:
            self.cluster.launchers[name] = launcher(self._path(name))
        self.missed: list[Step] = []

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.step"

    def _tell(self, name: str, what: str, when: str, nth: int) -> None:
        path = self._path(name)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"what": what, "when": when, "nth": nth}))
        draft.replace(path)

    def _await_death(self, names: list[str], step: Step) -> None:
        waited = 0.0
        plan = self.cluster.plan()
        while all(self.cluster.pid_of(plan.node(name)) for name in names):
            pause(0.02)
            waited += 0.02
            if waited > STEP_S:
                self.missed.append(step)
                return

    def sequencer_at(self, step: Step, nth: int) -> None:
        """The sequencer dies at a step, and comes back."""
        victim = sequencer_of(self.cluster)
        self._tell(victim, *step, nth)
        self._await_death([victim], step)
        self._mend()

    def electing_at(self, step: Step) -> None:
        """The sequencer is killed, and whoever comes first to a step of the election dies, too."""
        leader = sequencer_of(self.cluster)
        others = [name for name in NODES if name != leader]
        for name in others:
            self._tell(name, *step, 1)
        self.cluster.kill(leader)
        self._await_death(others, step)
        self._mend()

    def _mend(self) -> None:
        for name in NODES:
            self._tell(name, "", "", 0)
        pause(0.1)  # for a turn that began before
        self.cluster.start_all()
        self.cluster.await_ready()


@pytest.fixture
def deaths(tmp_path: Path) -> Iterator[Deaths]:
    made = Deaths(tmp_path)
    with running(made.cluster):
        yield made


@pytest.mark.req("GRP-14", "GRP-21", "GRP-22")
def test_17_the_sequencer_dies_at_each_step(deaths: Deaths) -> None:
    chance = random.Random(17)

    def strike() -> None:
        for step in STEPS:
            deaths.sequencer_at(step, chance.randint(1, 20))

    judged(deaths.cluster, strike)
    assert deaths.missed == []


@pytest.mark.req("GRP-21", "GRP-22")
def test_17_whoever_is_to_follow_dies_at_each_step_of_the_election(deaths: Deaths) -> None:
    def strike() -> None:
        for step in ELECTING:
            deaths.electing_at(step)

    judged(deaths.cluster, strike)
    assert deaths.missed == []
