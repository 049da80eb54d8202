"""Streams of a data server by hand: what is committed, as it comes, as far as was asked."""

import pytest

from samcast.group.data_server import DataServer
from samcast.group.storage import SendStored
from samcast.group.streams import STREAMS_MAX
from samcast.machine.ports import Effect, Received, Send
from samcast.wire.group import Follow, Head
from tests.group.build import CLIENT, GROUP, batch, codes, key_of, led_cell, only

RUNS = [batch(1, 2), batch(3), batch(4)]
FIRSTS = [1, 3, 4]


def serving() -> DataServer:
    """A data server that has three numbered runs."""
    cell = led_cell()
    for run in RUNS:
        cell.send(run)
    cell.run(200)
    return cell.data[1]


def follow(server: DataServer, number: int, runs: int, *, is_more: bool = False) -> list[Effect]:
    return server.step([Received(CLIENT, Follow(GROUP, number, runs, is_more))])


def streamed(effects: list[Effect]) -> list[int]:
    return [number for e in only(SendStored, effects) for number, _ in e.batches if e.to == CLIENT]


@pytest.mark.req("GRP-09")
def test_what_is_committed_is_sent_in_order_as_far_as_was_asked() -> None:
    server = serving()
    effects = follow(server, 1, 2)
    assert only(SendStored, effects) == [
        SendStored(CLIENT, ((1, key_of(RUNS[0])), (3, key_of(RUNS[1]))))
    ]
    assert [e.message for e in only(Send, effects) if e.to == CLIENT] == [Head(GROUP, 4)]
    assert streamed(follow(server, 1, 1, is_more=True)) == [4]
    assert streamed(follow(server, 1, 10, is_more=True)) == []


def test_a_stream_goes_on_by_itself_with_what_comes() -> None:
    cell = led_cell()
    server = cell.data[1]
    follow(server, 1, 10)
    cell.send(RUNS[0])
    cell.run(200)
    sent = [e for node, e in cell.seen if node == 1 and isinstance(e, SendStored)]
    assert [e for e in sent if e.to == CLIENT] == [SendStored(CLIENT, ((1, key_of(RUNS[0])),))]


def test_a_stream_that_starts_over_begins_where_it_is_told() -> None:
    server = serving()
    assert streamed(follow(server, 1, 10)) == FIRSTS
    assert streamed(follow(server, 3, 10)) == [3, 4]
    assert streamed(follow(server, 2, 1)) == [1]  # the run that holds it, whole


@pytest.mark.parametrize(("group", "number"), [(0, 1), (GROUP, 0), (GROUP, 2**62)])
def test_a_stream_of_nothing_is_turned_away_with_a_code(group: int, number: int) -> None:
    server = serving()
    effects = server.step([Received(CLIENT, Follow(group, number, 5))])
    assert codes(effects) == ["follow-range"]
    assert len(server.streams) == 0


def test_streams_are_bounded_and_the_oldest_is_forgotten() -> None:
    server = serving()
    for client in range(1000, 1000 + STREAMS_MAX + 5):
        server.step([Received(client, Follow(GROUP, 5, 1))])
    assert len(server.streams) == STREAMS_MAX


def test_a_stream_that_nobody_needs_ends_and_costs_nothing() -> None:
    server = serving()
    follow(server, 1, 10)
    assert len(server.streams) == 1
    effects = follow(server, 5, 0)
    assert len(server.streams) == 0
    assert [e for e in only(Send, effects) if e.to == CLIENT] == []
