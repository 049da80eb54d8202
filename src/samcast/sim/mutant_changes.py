"""The unsafe rules of changes of servers that mutants put back."""

from typing import Any

from samcast.group import election
from samcast.group.changing import Changing
from samcast.group.commit_server import CommitServer
from samcast.group.sequencer import Sequencer
from samcast.machine.ports import Effect
from samcast.sim.mutant import Mutant, replace
from samcast.wire.change import ChangeRequest
from samcast.wire.group import AnyRequest


def old_quorum_suffices() -> None:
    """The stop-sign counts as soon as the old configuration has it, and whoever is elected in the
    new one leads, with it or without."""
    replace(Changing, "is_held_by_next", lambda self, stop: True)

    def is_stopped(self: Any) -> bool:
        return bool(self.tail.configuration.number > self.configuration.number)

    def lead(self: Any, epoch: Any, log: Any, promises: Any, out: Any) -> None:
        self.sequencer = Sequencer(self, epoch, log, promises, out)

    replace(Sequencer, "is_stopped", property(is_stopped))
    replace(CommitServer, "lead", lead)


def nobody_stops() -> None:
    """The old configuration goes on deciding behind the stop-sign."""
    replace(Changing, "decided", lambda self, index: index)
    replace(Sequencer, "is_stopped", property(lambda self: False))


def membership_by_hand() -> None:
    """Whoever is told of a change believes it, before anybody has decided it."""
    before = Sequencer.on_propose

    def on_propose(self: Any, request: AnyRequest, out: list[Effect]) -> None:
        before(self, request, out)
        if type(request) is ChangeRequest:
            self._server.adopt_configuration(request.configuration, out)

    replace(Sequencer, "on_propose", on_propose)


def ranked_by_epoch_alone() -> None:
    """A log of the old configuration with a higher epoch beats one of the new."""
    replace(election, "stamp_of", lambda said: (0, said.log_epoch))


def leaves_with_its_payloads() -> None:
    replace(Changing, "_has_copies", lambda self, wanted: True)


CHANGE_MUTANTS = (
    Mutant("CE-17-old-quorum-suffices", "CE-17, 2.11 (4)", old_quorum_suffices),
    Mutant("CE-17-membership-by-hand", "CE-17", membership_by_hand),
    Mutant("CE-17-nobody-stops", "CE-17, 2.11 (3)", nobody_stops),
    Mutant("ranked-by-epoch-alone", "SAFETY 2.11, ADR 21", ranked_by_epoch_alone),
    Mutant("leaves-with-its-payloads", "SAFETY 2.11", leaves_with_its_payloads),
)
