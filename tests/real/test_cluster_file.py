"""Every wrong value of a cluster file is one sentence: what is wrong, and what is allowed."""

import dataclasses
from pathlib import Path

import pytest

from samcast.errors import ConfigError
from samcast.group.settings import LATER, GroupSettings
from samcast.runtime.cluster_file import bits_of, read_cluster_file, read_cluster_text
from samcast.runtime.cluster_text import cluster_text, write_cluster_file
from samcast.runtime.local_cluster import LocalCluster
from samcast.runtime.newcomer import write_newcomer


@pytest.fixture
def good(tmp_path: Path) -> Path:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.make(3, GroupSettings(retry_ms=50))
    return cluster.folder / "cluster.toml"


def test_a_file_that_we_wrote_reads_the_same(good: Path) -> None:
    plan = read_cluster_file(good)
    assert plan.settings.retry_ms == 50
    write_cluster_file(plan)
    assert read_cluster_file(good) == plan


def test_a_setting_that_came_later_is_only_told_where_it_is_not_the_default(good: Path) -> None:
    """Else nodes of two versions would refuse each other over the very same file."""
    plan = read_cluster_file(good)
    assert not [key for key, _ in plan.facts() if key.removeprefix("settings.") in LATER]
    changed = dataclasses.replace(plan, settings=GroupSettings(retry_ms=50, order_bytes_max=999))
    assert dict(changed.facts())["settings.order_bytes_max"] == "999"
    assert changed.digest() != plan.digest()


SPEAKING = 'k_data = 2\nmulticast = "239.1.2.3:7400"'
WRONG = [
    ("k_commit = 2", "k_commit = 0", "k_commit is 0; it must be a number, 1 to 28"),
    ("k_commit = 2", "k_commit = 9", "k_commit is 9 but there are 3 commit servers"),
    ("k_commit = 2", "k_commit = 'two'", "k_commit is 'two'"),
    ("e_commit = 2", "e_commit = 1", "could miss what"),
    ("k_data = 2", "", "k_data is missing"),
    ("k_data = 2", "k_data = 4", "k_data is 4"),
    ('name = "n1"', 'name = ""', "node 1.name is ''; it must be 1 to 200 characters"),
    ('name = "n2"', 'name = "n1"', "something that no other node has"),
    ("\nid = 2\n", "\nid = 1\n", "something that no other node has"),
    ("\nid = 2\n", "\nid = 99999\n", "a number, 1 to 65535"),
    ('host = "127.0.0.1"', 'host = "0.0.0.0"', "beyond this machine"),
    (
        'name = "n1"',
        'name = "n1"\nlisten = "here"',
        "node 1.listen is 'here'; it must be host:port",
    ),
    ('name = "n1"', 'name = "n1"\nlisten = "127.0.0.1:0"', "a port from 1 to 65535"),
    ('name = "n1"', 'name = "n1"\nlisten = "0.0.0.0:7000"', "beyond this machine"),
    ('roles = ["commit", "data", "checkpoint"]', 'roles = ["king"]', "a list of commit, data"),
    ('roles = ["commit", "data", "checkpoint"]', "roles = []", "a list of commit, data"),
    ("retry_ms = 50", "retry_ms = -1", "it must be at least 1"),
    ("retry_ms = 50", "retry_ms = true", "settings.retry_ms is True"),
    ("retry_ms = 50", "colour = 3", "settings.colour is no key that we know"),
    ("k_data = 2", "k_data = 2\nk_date = 2", "k_date is no key that we know"),
    ("k_data = 2", "k_data = = 2", "not TOML"),
    ("k_data = 2", 'k_data = 2\nmulticast = "10.0.0.1:7400"', "an IPv4 group that is yours"),
    ("k_data = 2", 'k_data = 2\nmulticast = "224.0.0.1:7400"', "such as 239.1.2.3:7000"),
    (
        "k_data = 2",
        'k_data = 2\nmetrics = "127.0.0.1:9"',
        "metrics belongs into the table [[node]]",
    ),
    ('name = "n1"', 'name = "n1"\nk_data = 2', "node 1.k_data belongs above the first [[node]]"),
    ('metrics = "127.0.0.1', 'metrics = "192.0.2.1', "would show its metrics on 192.0.2.1"),
    (
        "k_data = 2",
        'k_data = 2\nmulticast = "239.1.2.3"',
        "multicast is '239.1.2.3'; it must be group:port",
    ),
    ("k_data = 2", f"{SPEAKING}\ndatagram_bytes = 60001", "a number, 500 to 60000"),
    ("k_data = 2", f"{SPEAKING}\nparity_percent = 101", "a number, 0 to 100"),
    ("k_data = 2", f"{SPEAKING}\npace_mb_per_s = -1", "a number, 0 to 100000"),
    ("k_data = 2", f"{SPEAKING}\nmulticast_apart = 1", "it must be true or false"),
    ("k_data = 2", "k_data = 2\npace_mb_per_s = 1", "only where there is `multicast`"),
    (
        "k_data = 2",
        'k_data = 2\nmulticast = "239.255.255.253:7400"\nmulticast_apart = true',
        "an IPv4 group that is yours",
    ),
    ("k_data = 2", "k_data = 2\ninsecure = 1", "insecure is 1; it must be true or false"),
]


@pytest.mark.parametrize(("line", "wrong", "told"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_a_wrong_value_is_named_with_what_is_allowed(
    good: Path, line: str, wrong: str, told: str
) -> None:
    text = good.read_text()
    assert line in text
    good.write_text(text.replace(line, wrong, 1))
    with pytest.raises(ConfigError) as caught:
        read_cluster_file(good)
    assert told in str(caught.value)
    assert str(good) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_socket_s_path_has_a_limit(good: Path) -> None:
    text = good.read_text()
    for line in text.splitlines():
        if line.startswith("socket"):
            text = text.replace(line + "\n", "")
    good.write_text(text.replace('name = "n1"', f'name = "n1"\nsocket = "{"x" * 100}"'))
    with pytest.raises(ConfigError, match=r"node 1\.socket is .*at most 100 characters"):
        read_cluster_file(good)


def test_beyond_this_machine_must_be_said(good: Path) -> None:
    text = good.read_text().replace("127.0.0.1", "192.0.2.1")
    good.write_text(f"insecure = true\n{text}")
    assert read_cluster_file(good).nodes[0].host == "192.0.2.1"


def test_a_file_that_is_not_there_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="samcast up"):
        read_cluster_file(tmp_path / "none.toml")


def test_a_node_that_is_not_listed_is_named(good: Path) -> None:
    with pytest.raises(ConfigError, match="it lists n1, n2, n3"):
        read_cluster_file(good).node("n9")


def test_two_that_listen_on_one_machine_need_two_ports(good: Path) -> None:
    plan = read_cluster_file(good)
    text = good.read_text()
    good.write_text(text.replace(plan.nodes[0].metrics, f"127.0.0.1:{plan.nodes[0].port}"))
    with pytest.raises(ConfigError, match=r"metrics of n1 is \d+, and so is port of n1"):
        read_cluster_file(good)
    good.write_text(text.replace(plan.nodes[1].metrics, plan.nodes[0].metrics))
    with pytest.raises(ConfigError, match=r"metrics of n2 is \d+, and so is metrics of n1"):
        read_cluster_file(good)


def test_all_about_multicast_is_written_and_read(good: Path) -> None:
    plan = dataclasses.replace(
        read_cluster_file(good), multicast="239.1.2.3:7400", datagram_bytes=8900,
        parity_percent=10, pace_mb_per_s=50, is_multicast_apart=True,
    )  # fmt: skip
    write_cluster_file(plan)
    assert read_cluster_file(good) == plan
    assert sorted(plan.groups().values()) == [(f"239.1.2.{i}", 7400) for i in range(3, 7)]
    shared = dataclasses.replace(plan, is_multicast_apart=False)
    assert set(shared.groups().values()) == {("239.1.2.3", 7400)}
    assert shared.digest() != plan.digest()


def test_datagrams_tell_their_sender_by_its_address(good: Path) -> None:
    text = good.read_text().replace("k_data = 2", 'k_data = 2\nmulticast = "239.1.2.3:7400"')
    good.write_text(text)
    assert read_cluster_file(good).multicast == "239.1.2.3:7400"
    good.write_text(text.replace('name = "n1"', 'name = "n1"\nlisten = "127.0.0.1:9"'))
    with pytest.raises(ConfigError, match=r"node n1: listen is '127\.0\.0\.1:9'.*multicast"):
        read_cluster_file(good)
    good.write_text(text.replace('host = "127.0.0.1"', 'host = "localhost"', 1))
    with pytest.raises(ConfigError, match="an IPv4 address where there is multicast"):
        read_cluster_file(good)


def test_a_file_that_is_written_again_says_the_same(good: Path, tmp_path: Path) -> None:
    """Whatever is in names, and wherever folders and sockets are."""
    plan = read_cluster_file(good)
    odd = dataclasses.replace(
        plan.nodes[0],
        name='a "quoted"\tname\x7f',
        folder=tmp_path / "elsewhere" / "disk",
        socket=good.parent / "below" / "n.sock",
    )
    plan = dataclasses.replace(plan, cluster="it's \\ odd", nodes=(odd, *plan.nodes[1:]))
    write_cluster_file(plan)
    again = read_cluster_file(good)
    assert again == plan
    shared = read_cluster_text(cluster_text(plan, is_shared=True), tmp_path / "other.toml")
    assert shared.digest() == plan.digest()
    assert shared.origin() == plan.origin()


def test_a_newcomer_may_be_where_a_node_was(good: Path) -> None:
    plan = read_cluster_file(good)
    old = plan.nodes[0]
    newcomer = dataclasses.replace(
        old, id=9, name="n9", uuid=99, folder=good.parent / "n9", socket=None, metrics=""
    )
    write_newcomer(plan, newcomer)
    assert read_cluster_file(good).node("n9").port == old.port
    with pytest.raises(ConfigError, match="there was a node 'n9' before"):
        write_newcomer(read_cluster_file(good), newcomer)


def test_roles_that_are_said_twice_are_no_others() -> None:
    assert bits_of(["data", "data"]) == bits_of(["data"])
