"""The window of a reader: never more than it may hold, live only while it hears and keeps up."""

import pytest

from samcast.client.inbox import WINDOW_BYTES, Inbox
from samcast.errors import CollectedError
from samcast.group.member import Deliver, Lost, Member
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Received
from samcast.wire.batch import encode_batch
from samcast.wire.group import Follow, Repair
from samcast.wire.retention import Collected
from tests.group.build import CONFIGURATION, GROUP, SETTINGS, batch


class Ear:
    def __init__(self) -> None:
        self.is_hearing = True
        self.asked: list[Follow] = []
        self.member = Member(50, CONFIGURATION, SETTINGS, GROUP)
        self.inbox = Inbox(self.member, self.asked.append, lambda: self.is_hearing)

    def bring(self, counter: int) -> None:
        self.member.number_next = counter + 1
        self.member.heads_heard += 1
        self.inbox.on_effect(Deliver(GROUP, ((counter, batch(counter)),)))


def test_a_reader_that_has_caught_up_and_hears_needs_no_stream() -> None:
    ear = Ear()
    ear.inbox.restart()
    assert not ear.inbox.is_live
    ear.bring(1)
    assert ear.inbox.is_live
    assert ear.asked[-1] == Follow(GROUP, 2, 0)


def test_who_does_not_know_how_far_the_stream_goes_waits_for_more_of_it() -> None:
    ear = Ear()
    ear.bring(1)
    ear.inbox.restart()
    ear.inbox.on_effect(Deliver(GROUP, ((2, batch(2)),)))
    assert not ear.inbox.is_live
    ear.bring(3)
    assert ear.inbox.is_live


def test_a_reader_that_hears_nothing_any_more_has_a_stream_again() -> None:
    ear = Ear()
    ear.bring(1)
    ear.is_hearing = False
    ear.inbox.see_whether_stuck()
    assert not ear.inbox.is_live
    assert ear.asked[-1].runs > 0


def test_without_multicast_it_is_never_live() -> None:
    ear = Ear()
    ear.is_hearing = False
    ear.bring(1)
    ear.inbox.see_whether_stuck()
    assert not ear.inbox.is_live


@pytest.mark.parametrize("is_hearing", [True, False])
def test_a_reader_whose_user_takes_nothing_is_brought_nothing_more(is_hearing: bool) -> None:
    ear = Ear()
    ear.is_hearing = is_hearing
    ear.bring(1)
    brought = 1
    while not ear.member.is_paused:
        brought += 1
        ear.bring(brought)
        assert brought * len(batch(1).columns) < 2 * WINDOW_BYTES
    assert not ear.inbox.is_live
    asked = len(ear.asked)
    ear.inbox.see_whether_stuck()
    assert len(ear.asked) == asked
    assert ear.inbox.take(0) is not None
    ear.inbox.ask_for_more()
    assert not ear.member.is_paused
    assert ear.asked[-1].runs > 0


def test_nothing_follows_what_is_lost() -> None:
    ear = Ear()
    ear.bring(1)
    ear.inbox.on_effect(Lost(GROUP, 5))
    ear.bring(2)
    assert ear.inbox.take(0) == [(1, batch(1))]
    with pytest.raises(CollectedError, match="up to 5 are gone"):
        ear.inbox.take(0)


def test_a_batch_around_the_oldest_comes_whole_and_where_to_begin_is_told() -> None:
    settings = GroupSettings(is_one_step=True)
    member = Member(50, CONFIGURATION, settings, GROUP, 3, is_from_oldest=True)
    inbox = Inbox(member, lambda follow: None)
    repair = Repair(((1, encode_batch(batch(1, 9))),))
    for message in (Collected(GROUP, 4), repair):
        for effect in member.step([Received(1, message)]):
            inbox.on_effect(effect)
    assert inbox.take(0) == [(1, batch(1, 9))]
    assert inbox.first == 5
