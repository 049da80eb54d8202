"""Fetching in blocks: from several servers, around those that lack one, are silent or wrong."""

import pytest

from samcast.group.fetching import (
    AT_ONCE,
    FORGIVE_MS,
    REPEAT_MS,
    Absent,
    Fetched,
    Fetching,
    Refuse,
    Want,
)
from samcast.machine.ports import Effect, Received, Send, Ticked
from samcast.wire.retention import BlockReply, BlockRequest
from tests.group.build import GROUP, only

SERVERS = (1, 2, 3)
NUMBER = 500


def asked(effects: list[Effect]) -> list[tuple[int, BlockRequest]]:
    return [
        (send.to, send.message)
        for send in only(Send, effects)
        if isinstance(send.message, BlockRequest)
    ]


def reply(server: int, block: int, data: bytes, offset: int = 0, total: int = 0) -> Received:
    piece = BlockReply(GROUP, NUMBER, block, offset, total or len(data), data)
    return Received(server, piece)


def none(server: int, block: int) -> Received:
    return Received(server, BlockReply(GROUP, NUMBER, block, 0, 0, b""))


@pytest.mark.req("GRP-17")
def test_blocks_are_asked_of_all_servers_at_once() -> None:
    fetch = Fetching(GROUP, NUMBER, SERVERS, ())
    effects = fetch.step([Ticked(1), Want(tuple(range(1, 20)))])
    servers = [server for server, _ in asked(effects)]
    assert sorted(servers) == sorted(SERVERS * AT_ONCE)
    assert len({request.block for _, request in asked(effects)}) == len(servers)
    server, request = asked(effects)[0]
    effects = fetch.step([reply(server, request.block, b"rows")])
    assert only(Fetched, effects) == [Fetched(request.block, server, b"rows")]
    assert len(asked(effects)) == 1  # the next one


@pytest.mark.req("GRP-17")
def test_a_large_block_comes_in_pieces_and_a_piece_twice_counts_once() -> None:
    fetch = Fetching(GROUP, NUMBER, (1,), (4,))
    fetch.step([Ticked(1)])
    effects = fetch.step([reply(1, 4, b"abc", 0, 7)])
    assert asked(effects) == [(1, BlockRequest(GROUP, NUMBER, 4, 3))]
    assert fetch.step([reply(1, 4, b"abc", 0, 7)]) == []
    effects = fetch.step([reply(1, 4, b"defg", 3, 7)])
    assert only(Fetched, effects) == [Fetched(4, 1, b"abcdefg")]


@pytest.mark.req("GRP-17")
def test_who_lacks_a_block_is_silent_or_wrong_is_passed_over() -> None:
    fetch = Fetching(GROUP, NUMBER, SERVERS, (1,))
    tried = []
    ((server, _),) = asked(fetch.step([Ticked(1)]))
    tried.append(server)
    ((server, _),) = asked(fetch.step([Ticked(2), none(server, 1)]))
    tried.append(server)
    ((server, _),) = asked(fetch.step([Ticked(2 + REPEAT_MS)]))
    tried.append(server)
    assert sorted(tried) == [1, 2, 3]
    effects = fetch.step([Ticked(3 + REPEAT_MS), reply(server, 1, b"rot")])
    assert only(Fetched, effects)
    assert asked(fetch.step([Refuse(1, server)])) == []  # nobody is left for now
    assert fetch.due_ms() <= 3 + 2 * REPEAT_MS
    effects = fetch.step([Ticked(4 + REPEAT_MS + FORGIVE_MS)])
    assert len(asked(effects)) == 1


@pytest.mark.req("GRP-17")
def test_what_nobody_has_is_told_as_soon_as_all_have_said_so() -> None:
    fetch = Fetching(GROUP, NUMBER, SERVERS)
    ((first, _),) = asked(fetch.step([Ticked(1)]))
    ((second, _),) = asked(fetch.step([none(first, 0)]))
    ((third, _),) = asked(fetch.step([none(second, 0)]))
    assert fetch.step([none(third, 0)]) == [Absent(0)]
    assert fetch.step([Ticked(2)]) == []  # It is said once,
    ((first, _),) = asked(fetch.step([Ticked(2 + FORGIVE_MS)]))  # and asked for again.
    effects = fetch.step([reply(first, 0, b"it is there by now")])
    assert only(Absent, effects) == []
    assert len(only(Fetched, effects)) == 1


@pytest.mark.req("GRP-17")
def test_silence_alone_is_no_word_that_there_is_none() -> None:
    fetch = Fetching(GROUP, NUMBER, (1, 2))
    fetch.step([Ticked(1)])
    fetch.step([Ticked(1 + REPEAT_MS)])
    assert fetch.step([Ticked(1 + 2 * REPEAT_MS)]) == []
    ((server, _),) = asked(fetch.step([Ticked(1 + FORGIVE_MS + REPEAT_MS)]))
    effects = fetch.step([none(server, 0)])
    assert effects == [Absent(0)]  # One has said it, and the other was silent just now.


@pytest.mark.req("GRP-17")
def test_nonsense_is_not_taken() -> None:
    fetch = Fetching(GROUP, NUMBER, (1, 2), (1,))
    ((server, _),) = asked(fetch.step([Ticked(1)]))
    other = 3 - server
    assert fetch.step([reply(other, 1, b"not asked")]) == []
    huge = Received(server, BlockReply(GROUP, NUMBER, 1, 0, 2**40, b"x"))
    assert asked(fetch.step([huge])) == [(other, BlockRequest(GROUP, NUMBER, 1, 0))]


@pytest.mark.req("GRP-17")
def test_blocks_are_asked_for_as_of_one_list() -> None:
    fetch = Fetching(GROUP, NUMBER, (1,))
    ((_, request),) = asked(fetch.step([Ticked(1)]))
    assert (request.block, request.listed) == (0, b"")
    fetch.step([reply(1, 0, b"a list")])
    ((_, request),) = asked(fetch.step([Want((7,), b"its digest")]))
    assert (request.block, request.listed) == (7, b"its digest")
    ((_, request),) = asked(fetch.step([reply(1, 7, b"abc", 0, 7)]))
    assert (request.offset, request.listed) == (3, b"its digest")
