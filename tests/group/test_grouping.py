"""How events are grouped into steps never changes who gets which number."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.group.commit_server import CommitServer
from samcast.machine.ports import Received
from samcast.wire.batch import Batch
from samcast.wire.group import AnyRequest, GroupRemovalRequest, GroupRequest, OpenRequest, Propose
from samcast.wire.order import AnyEntry
from tests.group.build import (
    BOB,
    CLIENT,
    GROUP,
    NAMED,
    batch,
    led_cell,
    report,
    run_entry,
    submitted,
)

RUNS = [
    *(batch(counter) for counter in (1, 2, 3)),
    batch(2, text="other"),
    *(batch(counter, sender=BOB) for counter in (1, 2)),
    *(batch(counter, sender=NAMED) for counter in (1, 2)),
    batch(1, group=2),
]
Reported = tuple[int, list[Batch]]
REPORTS = st.tuples(st.integers(1, 3), st.lists(st.sampled_from(RUNS), min_size=1, max_size=4))
REQUESTS: list[AnyRequest] = [
    OpenRequest(GROUP, NAMED, 1, 0, 0, 7),
    GroupRequest("second", 9, 9),
    GroupRemovalRequest(GROUP),
]
STEPS = st.lists(st.one_of(REPORTS, REPORTS, REPORTS, st.sampled_from(REQUESTS)), max_size=14)


def leader() -> CommitServer:
    return led_cell(with_data=False).leader


def event_of(server: CommitServer, step: Reported | AnyRequest) -> Received:
    if isinstance(step, tuple):
        return report(server, step[0], *step[1])
    return Received(CLIENT, Propose(1, step))


@pytest.mark.req("GRP-04")
@settings(max_examples=60, derandomize=True, deadline=None)
@given(STEPS, st.data())
def test_the_grouping_of_events_never_changes_who_gets_which_number(
    steps: list[Reported | AnyRequest], data: st.DataObject
) -> None:
    one, many = leader(), leader()
    events = [event_of(one, step) for step in steps]
    apart: list[AnyEntry] = []
    for event in events:
        apart += submitted(one.step([event]))
    joined: list[AnyEntry] = []
    at = 0
    while at < len(events):
        end = data.draw(st.integers(at + 1, len(events)))
        joined += submitted(many.step(events[at:end]))
        at = end
    assert joined == apart


@pytest.mark.req("GRP-04")
def test_runs_are_numbered_in_the_order_in_which_they_became_ready() -> None:
    server = leader()
    runs = [batch(1), batch(1, sender=BOB), batch(2)]
    events = [report(server, node, of) for of in runs for node in (1, 2)]
    expected = [run_entry(of, number) for number, of in enumerate(runs, 1)]
    assert submitted(server.step(events)) == expected
