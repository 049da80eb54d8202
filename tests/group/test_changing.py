"""Who serves changes by order: what is waited for, what counts, and who may lead then."""

import pytest
from msgspec import structs

from samcast.group.listing import DataRecovery
from samcast.group.retained import Retained
from samcast.group.storage import OrderRecovery
from samcast.machine.ports import Configured, Introduce
from samcast.wire.batch import Batch
from samcast.wire.change import ChangeRequest, Join, Moved
from samcast.wire.control import Control
from samcast.wire.group import CommitAck, CommitSubmit, DataReport, OutcomeKind, Start, StartReply
from samcast.wire.order import (
    Checkpoint,
    ConfigEntry,
    Configuration,
    EpochEntry,
    Keep,
    Place,
    Server,
)
from samcast.wire.retention import CheckpointReport
from tests.group.build import (
    CLIENT,
    CONFIGURATION,
    SETTINGS,
    Cell,
    OrderDisk,
    batch,
    commit_server,
    data_server,
    led_cell,
    sent,
)

NEW = Server(4, 104, 3)
PLACE = Place(4, "four", "127.0.0.1", 7004)
WAIT_MS = 3000


def replaced(leaving: int, now: Configuration = CONFIGURATION) -> ChangeRequest:
    servers = (*(s for s in now.servers if s.node != leaving), NEW)
    target = structs.replace(now, number=now.number + 1, servers=servers, node_last=4)
    return ChangeRequest(target, (PLACE,))


def come(cell: Cell) -> None:
    """Server 4 runs, and waits."""
    cell.disks[4] = OrderDisk(104)
    cell.commit[4] = commit_server(4, recovery=OrderRecovery(104))
    cell.data[4] = data_server(4, recovery=DataRecovery(104))
    cell.add(4, cell.commit[4])
    cell.add(4, cell.data[4])


def ask(cell: Cell, request: ChangeRequest, tries: int = 40) -> OutcomeKind | None:
    """As an administrator does: again and again."""
    for nonce in range(1, tries):
        if any(s.sequencer for n, s in cell.commit.items() if n not in cell.down):
            outcome = cell.propose(request, nonce)
            if outcome is not None:
                return outcome.kind
        cell.run(100)
    return None


def leaver(cell: Cell) -> int:
    return next(node for node in (1, 2, 3) if node != cell.leader.node)


@pytest.mark.req("GRP-23")
def test_a_server_is_replaced_and_messages_go_on() -> None:
    cell = led_cell()
    cell.send(batch(1))
    come(cell)
    request = replaced(leaver(cell))
    assert ask(cell, request) is OutcomeKind.DONE
    assert cell.commit[4].configuration == request.configuration
    assert not cell.commit[4].is_learner
    cell.send(batch(2))
    cell.run(500)
    assert all(server.core.head(1) == 2 for n, server in cell.commit.items() if n in (4,))
    assert cell.data[4].numbered.is_whole
    assert cell.commit[4].core.places == {4: PLACE}


@pytest.mark.req("GRP-23")
def test_whoever_leads_may_leave() -> None:
    cell = led_cell()
    come(cell)
    leaving = cell.leader.node
    assert ask(cell, replaced(leaving)) is OutcomeKind.DONE
    assert cell.leader.node != leaving
    assert cell.commit[leaving].is_learner


def test_a_change_waits_for_a_server_that_is_not_there() -> None:
    cell = led_cell()
    leader = cell.leader
    assert ask(cell, replaced(leaver(cell)), tries=5) is None
    assert leader.sequencer is not None
    assert leader.sequencer.changing.waits_for == "server 4: it has 0 of 2 entries"
    assert leader.log.length == 2  # No stop-sign: everything goes on.
    introduced = [e for _, e in cell.seen if isinstance(e, Introduce)]
    assert introduced[0].places == (PLACE,)


def test_a_change_that_nobody_repeats_is_forgotten() -> None:
    cell = led_cell()
    leader = cell.leader
    cell.propose(replaced(leaver(cell)))
    assert leader.sequencer is not None
    assert list(leader.sequencer.changing.learners) == [4]
    cell.run(WAIT_MS)
    assert not leader.sequencer.changing.learners
    assert 4 not in leader.sequencer.progress


def test_a_change_that_is_ordered_is_finished_whoever_asks_for_it() -> None:
    cell = led_cell(with_data=False)
    leader, leaving = cell.leader, leaver(cell)
    sequencer = leader.sequencer
    assert sequencer is not None
    staying = next(node for node in (1, 2, 3) if node not in (leaving, leader.node))
    cell.down[staying] = None  # so that the newcomer is needed
    request = structs.replace(replaced(leaving), is_lost=True)
    sequencer.changing.on_request(request)
    sequencer.changing._order(request)
    cell.run(WAIT_MS // 2)  # Nobody repeats it.
    assert leader.sequencer is sequencer
    come(cell)
    cell.data.clear()
    cell.run(WAIT_MS)
    assert leader.configuration == request.configuration


def test_the_first_of_two_changes_is_heard_to_its_end() -> None:
    cell = led_cell()
    first, second = replaced(leaver(cell)), replaced(cell.leader.node)
    cell.propose(first, 1)
    cell.propose(second, 2)
    come(cell)
    assert ask(cell, first) is OutcomeKind.DONE
    assert ask(cell, second) is OutcomeKind.REFUSED


def test_payloads_are_copied_before_their_disk_may_go() -> None:
    cell = led_cell()
    leaving = leaver(cell)
    other = next(node for node in (1, 2, 3) if node not in (leaving, cell.leader.node))
    here = cell.data.pop(other)  # It gets no payloads, and can't be asked.
    cell.down[other] = None
    cell.send(batch(1))
    cell.down.pop(other)
    cell._roles = [(n, r) for n, r in cell._roles if r is not here]
    come(cell)
    assert ask(cell, replaced(leaving), tries=10) is None
    assert cell.leader.sequencer is not None
    assert "copies" in cell.leader.sequencer.changing.waits_for
    cell.data[other] = here
    cell.add(other, here)
    assert ask(cell, replaced(leaving)) is OutcomeKind.DONE


@pytest.mark.req("GRP-23")
def test_a_new_epoch_follows_the_stop_sign_and_nothing_of_the_old_configuration() -> None:
    cell = led_cell()
    come(cell)
    request = replaced(leaver(cell))
    cell.send(batch(1))
    assert ask(cell, request) is OutcomeKind.DONE
    leader = cell.leader
    entries = [leader.log.entry(i) for i in range(1, leader.log.length + 1)]
    assert [type(e) for e in entries[-2:]] == [ConfigEntry, EpochEntry]
    assert entries[-2] == ConfigEntry(request.configuration, (PLACE,))
    assert leader.core.settled == 2


def test_a_stop_sign_counts_only_when_a_quorum_of_the_new_ones_holds_it() -> None:
    cell = led_cell(with_data=False)
    sequencer = cell.leader.sequencer
    assert sequencer is not None
    me = cell.leader.node
    servers = (Server(me, 100 + me, 3), NEW, Server(5, 105, 3))
    target = structs.replace(CONFIGURATION, number=2, servers=servers, node_last=5)
    sequencer.append(ConfigEntry(target, (PLACE,)))
    sequencer.changing.stop_at = stop = sequencer.log.length
    sequencer.changing._meet(target)
    for progress in sequencer.progress.values():
        progress.acked = stop
    sequencer.progress[4].acked = sequencer.progress[5].acked = stop - 1
    assert sequencer.changing.decided(stop) == stop - 1
    sequencer.progress[4].acked = stop
    assert sequencer.changing.decided(stop) == stop
    assert sequencer.changing.decided(stop + 7) == stop


def test_nobody_leads_in_a_configuration_without_the_entry_that_made_it() -> None:
    cell = led_cell(with_data=False)
    target = structs.replace(CONFIGURATION, number=2)
    for node in cell.commit:
        cell.receive(node, CLIENT, Moved(target))
    cell.run(WAIT_MS)
    assert all(server.sequencer is None for server in cell.commit.values())
    warned = [e for _, e in cell.seen if getattr(e, "code", "") == "configuration-unknown"]
    assert warned


def test_a_new_configuration_is_told_to_the_host_once() -> None:
    cell = led_cell()
    come(cell)
    ask(cell, replaced(leaver(cell)))
    told = [e for node, e in cell.seen if node == 4 and isinstance(e, Configured)]
    assert {e.configuration.number for e in told} == {2}


def test_an_invited_server_installs_and_a_lost_disk_does_not() -> None:
    cell = led_cell(with_data=False)
    log = cell.leader.log
    assert cell.leader.sequencer is not None
    entries = tuple(log.slice(1, 10))
    start = Start(
        CONFIGURATION, cell.leader.sequencer.epoch, 0, bytes(32), 1, entries, len(entries)
    )
    come(cell)
    cell.receive(4, cell.leader.node, start)
    assert cell.commit[4].log.length == len(entries)
    lost = commit_server(2, recovery=OrderRecovery(999))
    assert not lost.may_accept()


def test_who_leads_in_a_later_configuration_is_asked_for_it() -> None:
    cell = led_cell()
    come(cell)
    assert ask(cell, replaced(leaver(cell))) is OutcomeKind.DONE
    late = commit_server(5, recovery=OrderRecovery(105))
    cell.disks[5] = OrderDisk(105)
    cell.commit[5] = late
    cell.add(5, late)
    cell.run(500)
    asked = [m for m in sent(e for n, e in cell.seen if n == 5) if isinstance(m, Join)]
    assert asked
    assert late.configuration.number == 2


def draining_cell() -> tuple[Cell, ChangeRequest]:
    """One of the data servers that stay has fallen silent, so that copies are waited for."""
    cell = led_cell()
    come(cell)
    cell.run(2000)  # all have said what they hold
    leaving = leaver(cell)
    other = next(node for node in (1, 2, 3) if node not in (leaving, cell.leader.node))
    request = replaced(leaving)
    silent = cell.data[other]
    cell._roles = [(n, r) for n, r in cell._roles if r is not silent]
    return cell, request


def say_last_words(cell: Cell, request: ChangeRequest) -> None:
    """Just after the change was asked for, the silent one has said that it has nearly all."""
    sequencer = cell.leader.sequencer
    assert sequencer is not None
    cell.propose(request, 1000)
    alive = [role for _, role in cell._roles]
    dead = next(role for role in cell.data.values() if role not in alive)
    words = DataReport(1, sequencer.epoch, dead.uuid, sequencer.log.length - 1, ())
    cell.receive(cell.leader.node, dead.node, words)


def test_numbering_is_not_held_for_a_newcomer_that_has_died() -> None:
    cell, request = draining_cell()
    sequencer = cell.leader.sequencer
    assert sequencer is not None
    say_last_words(cell, request)
    for nonce in range(1, 60):
        cell.propose(request, nonce)
        cell.run(50)
        if sequencer.changing.is_draining:
            break
    assert sequencer.changing.is_draining
    cell.down[4] = None
    for nonce in range(60, 100):  # The administrator goes on asking.
        cell.propose(request, nonce)
        cell.run(60)
    assert not sequencer.changing.is_draining
    cell.send(batch(1))
    cell.run(500)
    assert cell.leader.core.head(1) == 1


@pytest.mark.req("GRP-23")
def test_senders_wait_for_a_keeper_that_has_died_no_longer_than_for_a_sequencer() -> None:
    cell, request = draining_cell()
    sequencer = cell.leader.sequencer
    assert sequencer is not None
    held_back = [0]  # in ms, each time
    say_last_words(cell, request)
    for nonce in range(1, 400):
        cell.propose(request, nonce)
        cell.run(10)
        if sequencer.changing.is_draining:
            held_back[-1] += 10
        elif held_back[-1]:
            held_back.append(0)
    assert held_back[0] > 0
    assert max(held_back) <= SETTINGS.suspect_ms + 20
    assert len(held_back) <= 3  # not again and again


def test_what_a_data_server_said_of_a_disk_that_it_had_does_not_count() -> None:
    cell, request = draining_cell()
    sequencer = cell.leader.sequencer
    assert sequencer is not None
    assert ask(cell, request, tries=10) is None  # It said once that it had all of it.
    staying = [s.node for s in request.configuration.servers if s.node in cell.data]
    said = [sequencer.applied_by(node, sequencer.now_ms - 1100) for node in staying]
    assert 0 in said
    assert sequencer.applied_by(staying[0], 0) == sequencer.log.length


def test_a_checkpoint_is_on_another_server_before_its_holder_goes() -> None:
    kept = tuple(structs.replace(s, roles=7 if s.node < 3 else 3) for s in CONFIGURATION.servers)
    configuration = structs.replace(CONFIGURATION, servers=kept, k_checkpoint=1)
    cell = led_cell(configuration=configuration, with_data=False)
    sequencer = cell.leader.sequencer
    assert sequencer is not None
    target = structs.replace(configuration, servers=kept[1:], k_commit=2, e_commit=1)
    assert sequencer.changing._has_states(target)  # There is none yet.
    state = Checkpoint(7, 1, 1, bytes(32))
    retained = Retained()
    retained.set_keep(Keep(fold="table", fold_version=1), 0)
    retained.advertise(state)
    sequencer.tail.retained[1] = retained
    assert not sequencer.changing._has_states(target)
    assert "checkpoint 7" in sequencer.changing.waits_for
    report = CheckpointReport(1, sequencer.epoch, 102, 1, state, "table", 1)
    sequencer.retention.on_report(2, report, [])
    assert sequencer.changing._has_states(target)


class Split:
    """Server by server: who hears whom while a stop-sign is decided."""

    def __init__(self, cell: Cell, leader: int, staying: int, leaving: int) -> None:
        self.cell = cell
        self.sides = ((leader, 4), (leaving, staying))
        self.staying = staying
        self.is_cut = self.is_decided = self.is_healed = self.is_deaf = False
        self.held: list[CommitAck | StartReply] | None = []
        self._post = cell._post
        cell._post = self.post  # type: ignore[method-assign]

    def post(self, to: int, sender: int, message: Control | Batch) -> None:
        one, other = self.sides
        if self.is_cut and not self.is_healed:
            is_last_ack = type(message) is CommitAck and not self.is_decided
            if (sender in one and to in other) or (
                sender in other and to in one and not is_last_ack
            ):
                return
        if self.is_deaf and (sender, to) == one:
            return
        is_ack = isinstance(message, CommitAck | StartReply) and message.configuration == 2
        if self.held is not None and is_ack and (to, sender) == one:
            self.held.append(message)  # type: ignore[arg-type]
            return
        self._post(to, sender, message)
        if type(message) is CommitSubmit and to == self.staying:
            self.is_cut |= any(type(entry) is ConfigEntry for entry in message.entries)

    def release(self) -> None:
        """What was held back arrives now; what follows from it isn't heard."""
        held, self.held = self.held or [], None
        self.is_deaf = True
        for message in held:
            self._post(self.sides[0][0], 4, message)
        self.cell._drain()


@pytest.mark.req("GRP-23")
def test_a_higher_epoch_of_the_old_configuration_undoes_nothing_of_the_new() -> None:
    """The leader decides the stop-sign and is elected with the newcomer; the others, who don't
    know, elect one of them in the old configuration, in a higher epoch; the leader dies with
    something decided that nobody was told."""
    cell = led_cell()
    cell.send(batch(1))
    come(cell)
    leader = cell.leader.node
    leaving, staying = [node for node in (1, 2, 3) if node != leader][::-1]
    split = Split(cell, leader, staying, leaving)
    for nonce in range(1, 40):
        if split.is_cut:
            break
        cell.propose(replaced(leaving), nonce)
        cell.run(100)
    cell.run(300)
    split.is_decided = True
    cell.run(600)
    lead = cell.commit[leader]
    assert lead.sequencer is not None
    assert lead.configuration.number == 2
    cell.send(batch(2, text="y"))
    cell.run(60)
    split.release()
    assert lead.core.head(1) == 2
    assert cell.commit[staying].log_epoch > lead.log_epoch
    cell.down[leader] = None
    cell.data.pop(leader)
    split.is_healed, split.is_deaf = True, False
    cell.run(3000)
    for node in (staying, 4):
        assert cell.commit[node].core.index >= lead.core.index
        assert cell.commit[node].log.hash_at(lead.core.index) == lead.core.hash
