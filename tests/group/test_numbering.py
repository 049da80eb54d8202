"""Which run gets a number, and when: reports and proposals into a sequencer, entries out of it."""

import msgspec
import pytest

from samcast.group.commit_server import CommitServer
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Channel, Event, Multicast, Received, Ticked
from samcast.wire.batch import Batch
from samcast.wire.change import Join
from samcast.wire.group import (
    AbortRequest,
    AnyRequest,
    CommitSubmit,
    DataReport,
    DecisionRequest,
    FetchPlease,
    GroupRemovalRequest,
    GroupRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    Propose,
    SenderRemovalRequest,
)
from samcast.wire.order import (
    CELL,
    AbortEntry,
    AnyEntry,
    ConfigEntry,
    DecisionEntry,
    GroupEntry,
    GroupRemovedEntry,
    OpenEntry,
    Part,
    RunEntry,
    SenderRemovedEntry,
    StageRef,
)
from tests.group.build import (
    ANN,
    BOB,
    CLIENT,
    GROUP,
    NAMED,
    OWNER,
    SETTINGS,
    ack,
    batch,
    codes,
    epoch_of,
    hush,
    led_cell,
    only,
    report,
    run_entry,
    sent,
    stage_ref,
    submitted,
)


def leader(settings: GroupSettings = SETTINGS) -> CommitServer:
    """A sequencer whose log holds its epoch and the group, both committed; nobody else talks."""
    return led_cell(settings, with_data=False).leader


def numbered(server: CommitServer, *events: Event) -> list[AnyEntry]:
    return submitted(server.step(events))


def both(server: CommitServer, *batches: Batch) -> list[AnyEntry]:
    """Two data servers, as many as k_data, report these."""
    return numbered(server, report(server, 1, *batches), report(server, 2, *batches))


def propose(request: object, nonce: int = 1) -> Received:
    return Received(CLIENT, Propose(nonce, request))  # type: ignore[arg-type]


# Reports.


@pytest.mark.req("GRP-03")
def test_a_run_that_fewer_than_k_data_have_reported_has_no_number() -> None:
    server = leader()
    assert numbered(server, report(server, 1, batch(1))) == []
    assert numbered(server, report(server, 1, batch(1))) == []  # the same one twice is one
    assert numbered(server, Ticked(10**6)) == []


@pytest.mark.req("GRP-03")
def test_the_report_that_makes_it_k_data_gives_the_run_its_number() -> None:
    server = leader()
    numbered(server, report(server, 1, batch(1)))
    assert numbered(server, report(server, 3, batch(1))) == [run_entry(batch(1), 1)]


@pytest.mark.req("GRP-02", "GRP-06")
def test_one_report_names_many_runs_and_so_does_one_submit() -> None:
    server = leader()
    runs = [batch(1, 2), batch(3), batch(1, sender=BOB)]
    server.step([report(server, 1, *runs)])
    effects = server.step([report(server, 2, *runs)])
    (submit,) = [m for m in sent(effects) if isinstance(m, CommitSubmit)]
    assert submit.entries == (
        run_entry(batch(1, 2), 1),
        run_entry(batch(3), 3),
        run_entry(batch(1, sender=BOB), 4),
    )


@pytest.mark.req("GRP-03")
@pytest.mark.parametrize(
    "other",
    [batch(1, text="other"), batch(1, 2), batch(1, birth=1)],
    ids=["content", "count", "birth"],
)
def test_reports_of_different_content_do_not_add_up(other: Batch) -> None:
    server = leader()
    assert both(server, batch(1, sender=BOB)) != []
    events = [report(server, 1, batch(1)), report(server, 2, other)]
    assert numbered(server, *events) == []
    assert numbered(server, report(server, 3, other)) == [run_entry(other, 2)]


@pytest.mark.req("GRP-19")
def test_a_run_that_knows_a_number_which_is_not_there_yet_is_not_numbered() -> None:
    server = leader()
    assert both(server, batch(1, birth=1)) == []
    assert both(server, batch(1, birth=0)) != []


@pytest.mark.req("GRP-03")
def test_the_report_of_a_disk_that_is_not_listed_does_not_count() -> None:
    server = leader()
    server.step([report(server, 1, batch(1))])
    effects = server.step([report(server, 2, batch(1), uuid=999)])
    assert submitted(effects) == []
    assert codes(effects) == ["report-of-other-disk"]
    stranger = server.step([report(server, 99, batch(1))])
    assert submitted(stranger) == []
    assert codes(stranger) == ["report-of-other-disk"]


@pytest.mark.req("GRP-21")
def test_the_report_to_another_epoch_does_not_count() -> None:
    server = leader()
    server.step([report(server, 1, batch(1))])
    late = report(server, 2, batch(1)).message
    assert isinstance(late, DataReport)
    for epoch in ((9, 9, 9), (0, 0, 0), (1, 1, 2)):
        assert numbered(server, Received(2, msgspec.structs.replace(late, epoch=epoch))) == []


@pytest.mark.req("GRP-26")
def test_runs_of_a_sender_are_numbered_in_the_order_of_their_counters() -> None:
    server = leader()
    assert both(server, batch(4), batch(2, 2)) == []
    entries = both(server, batch(1))
    assert entries == [
        run_entry(batch(1), 1),
        run_entry(batch(2, 2), 2),
        run_entry(batch(4), 4),
    ]


@pytest.mark.req("GRP-04")
def test_a_run_that_has_its_number_gets_no_other_one() -> None:
    server = leader()
    assert both(server, batch(1)) == [run_entry(batch(1), 1)]
    assert both(server, batch(1)) == []
    assert both(server, batch(1, text="other")) == []
    assert numbered(server, report(server, 3, batch(1))) == []


@pytest.mark.parametrize("of", [(0, 1), (1, 0)], ids=["counter", "count"])
def test_an_impossible_range_is_turned_away_with_a_code(of: tuple[int, int]) -> None:
    server = leader()
    message = report(server, 1, batch(1)).message
    assert isinstance(message, DataReport)
    run = msgspec.structs.replace(message.runs[0], counter_first=of[0], count=of[1])
    broken = msgspec.structs.replace(message, runs=(run,))
    for node, uuid in ((1, 101), (2, 102), (3, 103)):
        effects = server.step([Received(node, msgspec.structs.replace(broken, uuid=uuid))])
        assert codes(effects) == ["report-range"]
        assert submitted(effects) == []


@pytest.mark.req("GRP-19")
def test_a_run_born_below_the_floor_is_never_numbered() -> None:
    server = leader()
    server.step([propose(GroupRequest("short", 3, 10))])
    for counter in range(1, 5):
        assert both(server, batch(counter, group=2, birth=counter - 1))
    assert both(server, batch(1, group=2, sender=BOB, birth=1)) == []
    assert both(server, batch(1, group=2, sender=BOB, birth=2)) != []


def test_a_run_of_a_group_that_is_made_later_is_numbered_then() -> None:
    server = leader()
    early = batch(1, group=2)
    assert both(server, early) == []
    server.step([propose(GroupRequest("second", 5, 5))])
    assert both(server, early) == [run_entry(early, 1)]


@pytest.mark.req("GRP-26")
def test_a_named_run_waits_for_its_open() -> None:
    server = leader()
    of = batch(1, sender=NAMED)
    assert both(server, of) == []
    entries = numbered(server, propose(OpenRequest(GROUP, NAMED, 1, 0, 0, 7)))
    assert entries == [OpenEntry(GROUP, NAMED, 1, 0, 0, 7), run_entry(of, 1)]


@pytest.mark.req("GRP-26")
def test_runs_of_a_lower_incarnation_are_not_numbered_behind_an_open() -> None:
    server = leader()
    server.step([propose(OpenRequest(GROUP, NAMED, 1, 0, 0, 7))])
    server.step([propose(OpenRequest(GROUP, NAMED, 2, 0, 0, 8))])
    assert both(server, batch(1, sender=NAMED, incarnation=1)) == []
    assert both(server, batch(1, sender=NAMED, incarnation=2)) != []


def test_what_is_submitted_and_not_committed_is_bounded() -> None:
    settings = GroupSettings(entries_per_message_max=2)
    server = leader(settings)
    runs = [batch(counter) for counter in range(1, 21)]
    assert len(both(server, *runs)) == 8
    assert server.log.length == 2  # of its own log nothing is stored here: nobody brings submits
    entries = numbered(server, *(ack(server, node, 6) for node in (1, 2)))
    assert [e.number_first for e in entries if isinstance(e, RunEntry)] == [9, 10, 11, 12]


def test_a_sequencer_remembers_a_bounded_number_of_runs() -> None:
    server = leader(GroupSettings(pending_runs_max=3))
    crowd = [batch(1, sender=bytes([2 * n]) + bytes(15)) for n in range(1, 6)]
    server.step([report(server, 1, *crowd)])
    entries = numbered(server, report(server, 2, *crowd))
    assert len(entries) == 3
    assert len(both(server, *crowd)) == 2  # reported again when there is room


# Fetching.


@pytest.mark.req("GRP-27")
def test_a_run_that_stays_below_k_data_is_fetched_by_those_that_lack_it() -> None:
    server = leader()
    server.step([report(server, 3, batch(1))])
    now_ms = server.now_ms + SETTINGS.fetch_after_ms
    effects = server.step([Ticked(now_ms)])
    please = FetchPlease(epoch_of(server), ((GROUP, ANN, 1, 1),), (), (3,))
    assert only(Multicast, effects)[-1] == Multicast(Channel.DATA, please)
    assert [m for m in sent(server.step([Ticked(now_ms + 1)])) if isinstance(m, FetchPlease)] == []


# Proposals.


@pytest.mark.parametrize(
    ("request_", "entry"),
    [
        (GroupRequest("new", 5, 6), GroupEntry(2, "new", 5, 6)),
        (GroupRemovalRequest(GROUP), GroupRemovedEntry(GROUP)),
        (OpenRequest(GROUP, NAMED, 3, 0, 0, 7), OpenEntry(GROUP, NAMED, 3, 0, 0, 7)),
    ],
)
def test_a_proposal_that_would_take_effect_is_ordered_once(
    request_: object, entry: AnyEntry
) -> None:
    server = leader()
    assert numbered(server, propose(request_), propose(request_, 2)) == [entry]
    assert numbered(server, propose(request_, 3)) == []


@pytest.mark.parametrize(
    "request_",
    [
        GroupRequest("orders", 5, 6),
        GroupRemovalRequest(CELL),
        OpenRequest(GROUP, ANN, 1, 0, 0, 7),
        OpenRequest(GROUP, NAMED, 0, 0, 0, 7),
        OpenRequest(9, NAMED, 1, 0, 0, 7),
        AbortRequest(OWNER, 1, 1),
        DecisionRequest(OWNER, 1, 1, ((GROUP, (stage_ref(batch(stage=1)),)),)),
    ],
)
def test_a_proposal_that_would_not_take_effect_is_not_ordered(request_: object) -> None:
    assert numbered(leader(), propose(request_)) == []


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (OpenRequest(GROUP, NAMED, 2, 1, 0, 5), OutcomeKind.REMOVED),
        (SenderRemovalRequest(GROUP, NAMED), OutcomeKind.DONE),
        (SenderRemovalRequest(9, NAMED), OutcomeKind.DONE),
        (GroupRemovalRequest(9), OutcomeKind.DONE),
    ],
)
def test_what_only_its_place_in_the_log_can_tell_is_ordered_and_answered(
    request_: AnyRequest, kind: OutcomeKind
) -> None:
    cell = led_cell(with_data=False)
    before = cell.commit[2].core.index
    cell.receive(2, CLIENT, Propose(5, request_))
    told = [m for m in sent((e for _, e in cell.seen), CLIENT) if isinstance(m, Outcome)]
    assert [(m.nonce, m.kind) for m in told[1:]] == [(5, kind)]
    assert cell.commit[2].core.index == before + 1


def test_a_name_can_be_given_up() -> None:
    server = leader()
    server.step([propose(OpenRequest(GROUP, NAMED, 1, 0, 0, 7))])
    entries = numbered(server, propose(SenderRemovalRequest(GROUP, NAMED)))
    assert entries == [SenderRemovedEntry(GROUP, NAMED)]


# Decisions.

STAGES = [batch(1, 2, sender=OWNER, stage=n, text=f"s{n}") for n in (1, 2)]
DECISION = DecisionRequest(OWNER, 1, 1, ((GROUP, tuple(map(stage_ref, STAGES))),))
DECIDED = DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, tuple(map(stage_ref, STAGES))),))


def opened() -> CommitServer:
    server = leader()
    server.step([propose(OpenRequest(CELL, OWNER, 1, 0, 0, 7))])
    return server


def test_stages_get_no_numbers_by_themselves() -> None:
    assert both(opened(), *STAGES) == []


def test_a_decision_waits_until_every_stage_is_on_k_data_disks() -> None:
    server = opened()
    assert numbered(server, propose(DECISION)) == []
    assert both(server, STAGES[0]) == []
    assert numbered(server, report(server, 1, STAGES[1])) == []
    assert numbered(server, report(server, 2, STAGES[1])) == [DECIDED]


def test_a_decision_whose_stages_are_held_is_ordered_at_once() -> None:
    server = opened()
    both(server, *STAGES)
    assert numbered(server, propose(DECISION)) == [DECIDED]
    assert numbered(server, propose(DECISION)) == []


def test_a_decision_does_not_take_a_stage_of_other_content() -> None:
    server = opened()
    both(server, STAGES[0], batch(1, 2, sender=OWNER, stage=2, text="other"))
    assert numbered(server, propose(DECISION)) == []


def test_a_decision_does_not_take_stages_of_another_life() -> None:
    server = opened()
    both(server, *STAGES)
    server.step([propose(OpenRequest(CELL, OWNER, 2, 0, 0, 8))])
    assert numbered(server, propose(DECISION)) == []
    again = msgspec.structs.replace(DECISION, incarnation=2)
    assert numbered(server, propose(again)) == []


def test_an_abort_that_comes_first_wins() -> None:
    server = opened()
    server.step([propose(DECISION)])
    assert numbered(server, propose(AbortRequest(OWNER, 1, 1))) == [AbortEntry(OWNER, 1, 1)]
    assert both(server, *STAGES) == []


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ((CELL, (stage_ref(STAGES[0]),)),),
        ((GROUP, (stage_ref(STAGES[0]),)), (GROUP, (stage_ref(STAGES[1]),))),
        ((GROUP, ()),),
        ((GROUP, (stage_ref(STAGES[0]),) * 2),),
        ((GROUP, tuple(StageRef(n, 1, bytes(16)) for n in range(1, 1026))),),
    ],
    ids=["nothing", "cell", "group twice", "empty", "stage twice", "too many"],
)
def test_a_decision_that_makes_no_sense_is_refused_and_not_ordered(
    parts: tuple[tuple[int, tuple[StageRef, ...]], ...],
) -> None:
    server = opened()
    both(server, *STAGES)
    effects = server.step([propose(msgspec.structs.replace(DECISION, parts=parts))])
    assert sent(effects, CLIENT) == [Outcome(1, OutcomeKind.REFUSED)]
    assert submitted(effects) == []


# The stop-sign.


def test_behind_a_stop_sign_nothing_is_numbered() -> None:
    server = leader()
    hush(server)
    entries = numbered(server, Received(3, Join(3, 333, 1)))
    assert [type(entry) for entry in entries] == [ConfigEntry]
    assert both(server, batch(1)) == []
    assert numbered(server, propose(GroupRequest("second", 5, 5))) == []
    assert numbered(server, Received(2, Join(2, 222, 1))) == []
