"""The unsafe rules that mutants put back: what data servers take in, and what they say of the
rest.
"""

from collections.abc import Sequence
from typing import Any

from samcast.group.admission import Admitting
from samcast.group.core import Core
from samcast.group.payloads import asked_of
from samcast.group.rows import answer_of
from samcast.machine.ports import Effect, NodeId
from samcast.sim.mutant import Mutant, replace
from samcast.wire.group import AnswerKind, Asked


def no_share_per_client() -> None:
    """One client may take all the room that there is."""
    replace(Admitting, "share_of_client", lambda self, most: most)


def unknown_is_stored() -> None:
    """What the fold can't place is stored like anything else."""
    replace(Admitting, "unknown", lambda self, batch: None)


def behind_refuses() -> None:
    """A group that the fold doesn't know is said not to be there."""
    before = Core.answer

    def answer(self: Any, asked: Asked) -> tuple[AnswerKind, int] | None:
        if asked.group not in self.groups:
            return (AnswerKind.NO_GROUP, 0)
        return before(self, asked)

    replace(Core, "answer", answer)


def no_room_is_final() -> None:
    """Who has no room says that the batch will never be numbered, whatever others have."""
    on_run = Admitting._on_run

    def answered(self: Any, sender: NodeId, key: Any, batch: Any, out: list[Effect]) -> None:
        on_run(self, sender, key, batch, out)
        if any(refused == key for refused, _, _ in self._blocked.get(sender, ())):
            answer = answer_of(asked_of(batch), AnswerKind.EXPIRED, 0)
            self._server.answer(sender, answer)

    replace(Admitting, "_on_run", answered)


ADMISSION_MUTANTS: Sequence[Mutant] = (
    Mutant("no-share-per-client", "SAFETY 2.4.2", no_share_per_client),
    Mutant("unknown-is-stored", "SAFETY 2.4.2", unknown_is_stored),
    Mutant("behind-refuses", "SAFETY 2.7", behind_refuses),
    Mutant("no-room-is-final", "SAFETY 2.7", no_room_is_final),
)
