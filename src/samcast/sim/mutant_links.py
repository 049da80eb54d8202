"""The rules of sizes that mutants break: what a link drops must not be all that is ever sent."""

from typing import Any

from samcast.group.owner import Owner
from samcast.group.stage_window import StageWindow
from samcast.machine.ports import Effect, Multicast
from samcast.sim.mutant import Mutant, replace


def stages_all_at_once() -> None:
    """An owner sends all stages in one turn, and all of them again, from the first on."""

    def send(self: Any, now_ms: int, out: list[Effect]) -> None:
        self._waiting.clear()

    def propose(self: Any, out: list[Effect]) -> None:
        out += [Multicast(self._channel, batch) for batch in self._batches]
        before(self, out)

    before = Owner._propose
    replace(StageWindow, "send", send)
    replace(Owner, "_propose", propose)


LINK_MUTANTS = (Mutant("stages-all-at-once", "SAFETY 2.12, ADR 36", stages_all_at_once),)
