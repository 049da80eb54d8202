"""Quorums: which configurations are refused, with which sentence, and who counts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.errors import ConfigError
from samcast.machine.quorum import check_quorums, kth_largest, lists, servers_with
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA, Configuration, Server

BOTH = ROLE_COMMIT | ROLE_DATA


def configuration(
    n: int, k: int, e: int, k_data: int = 1, n_data: int | None = None
) -> Configuration:
    """`n` commit servers, of which the first `n_data` (all, if not said) keep data, too."""
    kept = n if n_data is None else n_data
    servers = (Server(i, 100 + i, BOTH if i <= kept else ROLE_COMMIT) for i in range(1, n + 1))
    return Configuration(1, tuple(servers), k, e, k_data)


@pytest.mark.req("GRP-22")
@pytest.mark.parametrize(
    ("n", "k", "e", "k_data"),
    [
        (1, 1, 1, 1),
        (3, 2, 2, 2),
        (3, 3, 1, 3),
        (3, 1, 3, 1),
        (4, 3, 2, 2),
        (5, 3, 3, 4),
        (5, 3, 5, 1),
    ],
)
def test_quorums_that_meet_are_accepted(n: int, k: int, e: int, k_data: int) -> None:
    check_quorums(configuration(n, k, e, k_data))


@pytest.mark.req("GRP-22")
@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (configuration(3, 0, 3), "k_commit is 0 but there are 3 commit servers; choose 1 to 3"),
        (configuration(3, 4, 3), "k_commit is 4 but there are 3 commit servers; choose 1 to 3"),
        (configuration(3, 3, 0), "e_commit is 0 but there are 3 commit servers; choose 1 to 3"),
        (configuration(3, 2, 4), "e_commit is 4 but there are 3 commit servers; choose 1 to 3"),
        (
            configuration(5, 2, 3),
            "e_commit is 3: an election could miss what 2 of 5 have committed; "
            "it must be at least n - k + 1 = 4",
        ),
        (configuration(3, 2, 2, 0), "k_data is 0 but there are 3 data servers"),
        (configuration(3, 2, 2, 3, n_data=2), "k_data is 3 but there are 2 data servers"),
        (configuration(0, 1, 1), "k_commit is 1 but there are 0 commit servers; choose 1 to 0"),
        (
            Configuration(1, (Server(1, 1, BOTH), Server(1, 2, BOTH)), 2, 1, 1),
            "a node is listed twice; give every server its own id",
        ),
    ],
)
def test_quorums_that_do_not_meet_are_refused_with_a_sentence(
    refused: Configuration, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_quorums(refused)
    assert str(caught.value) == sentence


@pytest.mark.req("GRP-22")
@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(1, 6), st.integers(0, 7), st.integers(0, 7))
def test_every_election_quorum_of_an_accepted_configuration_meets_every_commit_quorum(
    n: int, k: int, e: int
) -> None:
    meets = k >= 1 and e >= 1 and max(k, e) <= n < k + e  # by counting: two disjoint ones can't fit
    if meets:
        check_quorums(configuration(n, k, e))
    else:
        with pytest.raises(ConfigError):
            check_quorums(configuration(n, k, e))


def test_a_server_is_listed_by_node_disk_and_role_together() -> None:
    listed = Configuration(1, (Server(1, 101, ROLE_COMMIT), Server(2, 102, ROLE_DATA)), 1, 1, 1)
    assert lists(listed, 1, 101, ROLE_COMMIT)
    assert not lists(listed, 1, 102, ROLE_COMMIT)
    assert not lists(listed, 1, 101, ROLE_DATA)
    assert not lists(listed, 3, 101, ROLE_COMMIT)
    assert [server.node for server in servers_with(listed, ROLE_COMMIT)] == [1]
    assert [server.node for server in servers_with(listed, ROLE_DATA)] == [2]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=7), st.integers(1, 8))
def test_the_kth_largest_is_the_highest_number_that_k_values_reach(
    values: list[int], k: int
) -> None:
    reached = [n for n in range(10) if sum(value >= n for value in values) >= k]
    assert kth_largest(values, k) == max(reached, default=0)
