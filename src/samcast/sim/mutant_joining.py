"""The unsafe rules of new disks of listed nodes that mutants put back."""

from typing import Any

from samcast.group.admitting import Admitting
from samcast.sim.mutant import Mutant, replace


def joins_at_once() -> None:
    """Whoever asks for a node's place gets it, though the listed disk answers."""
    replace(Admitting, "why_not", lambda self, listed, uuid: "")


def deaf_to_the_listed() -> None:
    """Silence is counted from the epoch's beginning alone, whatever was heard since."""

    def on_heard(self: Any, uuid: int) -> None:
        pass

    replace(Admitting, "on_heard", on_heard)


JOINING_MUTANTS = (
    Mutant("joins-at-once", "SAFETY 2.11, ADR 34", joins_at_once),
    Mutant("deaf-to-the-listed", "SAFETY 2.11, ADR 34", deaf_to_the_listed),
)
