"""Which configuration may follow which, and with which sentence others are refused."""

import pytest
from msgspec import structs

from samcast.errors import ConfigError
from samcast.limits import NODE_MAX, SERVERS_MAX, TWIN_RECORD_BYTES_MAX
from samcast.machine.change import check_change, needs_copies, node_last
from samcast.machine.quorum import check_quorums
from samcast.wire.change import ChangeRequest
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA, Configuration, Place, Server
from samcast.wire.records import VoteRecord, encode_record

BOTH = ROLE_COMMIT | ROLE_DATA
NOW = Configuration(4, tuple(Server(n, 100 + n, BOTH) for n in (1, 2, 3)), 2, 2, 2, 0, 7)
NEW = Server(8, 108, BOTH)
PLACE = Place(8, "eight", "127.0.0.1", 7008)
OLD = Server(7, 107, BOTH)
AGAIN = Place(7, "seven", "127.0.0.1", 7007)


def next_with(*servers: Server, last: int = 8, **others: int) -> Configuration:
    return structs.replace(NOW, number=5, servers=servers, node_last=last, **others)


REPLACED = next_with(*NOW.servers[:2], NEW)


def test_one_server_takes_the_place_of_another() -> None:
    check_change(NOW, ChangeRequest(REPLACED, (PLACE,)))
    assert node_last(NOW) == 7
    assert node_last(REPLACED) == 8


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (ChangeRequest(structs.replace(REPLACED, number=4), (PLACE,)), "somebody else has changed"),
        (ChangeRequest(structs.replace(REPLACED, number=6), (PLACE,)), "somebody else has changed"),
        (ChangeRequest(REPLACED), "places are given for"),
        (ChangeRequest(next_with(*NOW.servers[:2], OLD), (AGAIN,)), "7 is or was another"),
        (
            ChangeRequest(next_with(*NOW.servers[:2], Server(3, 999, BOTH))),
            "its disk and its roles must stay",
        ),
        (
            ChangeRequest(next_with(*NOW.servers[:2], Server(3, 103, ROLE_COMMIT))),
            "its disk and its roles must stay",
        ),
        (
            ChangeRequest(next_with(*NOW.servers[:2], Server(8, 102, BOTH)), (PLACE,)),
            "two servers have one disk",
        ),
        (
            ChangeRequest(next_with(*NOW.servers[:2], Server(8, 0, BOTH)), (PLACE,)),
            "two servers have one disk",
        ),
        (
            ChangeRequest(next_with(*NOW.servers[:2], NEW, last=7), (PLACE,)),
            "the highest id ever is 8",
        ),
        (ChangeRequest(next_with(*NOW.servers, last=7, k_commit=4)), "k_commit is 4"),
        (ChangeRequest(REPLACED, (PLACE, PLACE)), "places are given for"),
        (ChangeRequest(REPLACED, (PLACE, AGAIN)), "places are given for"),
        (
            ChangeRequest(next_with(*NOW.servers[:2], Server(2**16, 108, BOTH))),
            "ids are 1 to 65535",
        ),
        (ChangeRequest(next_with(*NOW.servers[:2], Server(8, 108, 2**60 | 4))), "roles 1 to 7"),
        (ChangeRequest(next_with(*NOW.servers, last=2**40)), "it may be 65535"),
        (
            ChangeRequest(next_with(NOW.servers[0], NEW), (PLACE,)),
            "only 1 of the present data servers stay",
        ),
    ],
)
def test_what_can_t_follow_is_refused(request_: ChangeRequest, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_change(NOW, request_)


def test_a_disk_that_is_lost_is_not_waited_for() -> None:
    only = next_with(NOW.servers[0], NEW)
    check_change(NOW, ChangeRequest(only, (PLACE,), is_lost=True))


def test_copies_are_needed_where_a_disk_leaves_or_more_must_hold_a_message() -> None:
    assert needs_copies(NOW, REPLACED)
    assert needs_copies(NOW, next_with(*NOW.servers, k_data=3))
    assert not needs_copies(NOW, next_with(*NOW.servers, NEW))


def test_the_largest_configuration_fits_a_vote_and_a_larger_one_is_refused() -> None:
    servers = tuple(Server(NODE_MAX - n, 2**63 - 1 - n, 7) for n in range(SERVERS_MAX))
    most = Configuration(2**40, servers, 16, 15, 2, 2, NODE_MAX)
    check_quorums(most)
    epoch = (2**48, 2**16, 2**62)
    assert len(encode_record(VoteRecord(epoch, epoch, most, 2**40))) <= TWIN_RECORD_BYTES_MAX
    with pytest.raises(ConfigError, match=f"there may be {SERVERS_MAX}"):
        check_quorums(structs.replace(most, servers=(*servers, Server(1, 1, 7))))
