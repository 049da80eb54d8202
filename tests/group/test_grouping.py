"""How events are grouped into steps never changes who gets which number."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.machine.ports import Received
from samcast.wire.batch import Batch
from samcast.wire.order import AnyEntry
from tests.group.build import batch, led_cell, report, submitted

CROWD = [batch(1, 1 + n % 3, sender=bytes([2 * n]) + bytes(15)) for n in range(1, 8)]
OTHERS = [batch(1, sender=of.sender, text="other") for of in CROWD[:3]]
REPORTS = st.tuples(
    st.integers(1, 3), st.lists(st.sampled_from([*CROWD, *OTHERS]), min_size=1, max_size=4)
)
Reports = list[tuple[int, list[Batch]]]


@pytest.mark.req("GRP-04")
@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.lists(REPORTS, max_size=16), st.data())
def test_the_grouping_of_reports_never_changes_which_sender_gets_which_number(
    steps: Reports, data: st.DataObject
) -> None:
    one, many = (led_cell(with_data=False).leader for _ in range(2))
    events: list[Received] = [report(one, node, *runs) for node, runs in steps]
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
