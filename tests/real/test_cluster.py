"""Real processes, sockets and disks: what is confirmed is there, once, in order, for everybody."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import samcast
from samcast.client.blocking import Client
from samcast.client.leading import sequencer_of
from samcast.errors import ConfigError, FencedError, NotConnectedError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import running

WAIT_S = 30.0


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with samcast.connect(cluster.address) as made:
        yield made


def bodies_from(cluster: LocalCluster, node: str, group: str, count: int) -> list[bytes]:
    plan = cluster.plan().node(node)
    with samcast.connect(f"{plan.host}:{plan.port}") as reader:
        messages = list(reader.group(group).read(1, count=count, timeout=WAIT_S))
    assert [m.number for m in messages] == list(range(1, len(messages) + 1))
    return [m.body for m in messages]


@pytest.mark.req("GRP-01", "GRP-02", "GRP-03", "GRP-04", "GRP-08", "GRP-12")
def test_messages_are_numbered_and_equal_at_every_node(
    cluster: LocalCluster, client: Client
) -> None:
    group = client.group("orders")
    receipts = [group.send(b"message %d" % i) for i in range(500)]
    assert sorted(r.number(WAIT_S) for r in receipts) == list(range(1, 501))
    copies = [bodies_from(cluster, node, "orders", 500) for node in ("n1", "n2", "n3")]
    assert copies[0] == [b"message %d" % i for i in range(500)]
    assert copies[1] == copies[2] == copies[0]


@pytest.mark.req("GRP-04", "GRP-21", "GRP-22")
def test_nothing_is_lost_or_doubled_when_sequencers_are_killed(
    cluster: LocalCluster, client: Client
) -> None:
    group = client.group("orders")
    group.send(b"0").number(WAIT_S)
    sent = 1
    for _ in range(3):
        victim = sequencer_of(cluster)
        for _ in range(300):
            group.send(b"%d" % sent)
            sent += 1
        cluster.kill(victim)
        for _ in range(300):
            group.send(b"%d" % sent)
            sent += 1
        group.flush(WAIT_S)
        cluster.start(victim)
        cluster.await_ready()
    expected = [b"%d" % i for i in range(sent)]
    for node in ("n1", "n2", "n3"):
        assert bodies_from(cluster, node, "orders", sent) == expected


@pytest.mark.req("GRP-23", "GRP-27")
def test_all_nodes_are_killed_at_once_and_go_on_with_their_data(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        client.group("orders").send_many(b"%d" % i for i in range(2000))
        client.group("orders").flush(WAIT_S)
    for process in cluster.processes():
        cluster.kill(process.plan.name)
    cluster.start_all()
    cluster.await_ready()
    with samcast.connect(cluster.address) as client:
        assert client.group("orders").send(b"2000").number(WAIT_S) == 2001
    for node in ("n1", "n2", "n3"):
        assert bodies_from(cluster, node, "orders", 2001) == [b"%d" % i for i in range(2001)]


@pytest.mark.req("GRP-26")
def test_a_named_sender_goes_on_where_it_stopped(cluster: LocalCluster) -> None:
    for life in range(3):
        with samcast.connect(cluster.address) as client:
            sender = client.group("orders").sender("till")
            assert sender.sent_before == 10 * life
            for place in range(10):
                sender.send(b"%d" % (10 * life + place))
            sender.flush(WAIT_S)
    assert bodies_from(cluster, "n1", "orders", 30) == [b"%d" % i for i in range(30)]


def test_a_name_that_another_process_opened_is_over(cluster: LocalCluster, client: Client) -> None:
    first = client.group("orders").sender("till")
    first.send(b"mine").number(WAIT_S)
    with samcast.connect(cluster.address) as other:
        second = other.group("orders").sender("till")
        assert second.sent_before == 1
        second.send(b"theirs").number(WAIT_S)
    with pytest.raises(FencedError, match="another process"):
        first.send(b"too late").number(WAIT_S)


def test_a_transaction_takes_effect_in_all_its_groups_or_in_none(client: Client) -> None:
    debit, credit = client.group("debit"), client.group("credit")
    with client.transaction() as tx:
        tx.send(debit, b"-5")
        tx.send(credit, b"+5")

    def fail() -> None:
        with client.transaction() as tx:
            tx.send(debit, b"-7")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (debit.head(), credit.head()) == (1, 1)
    assert [m.body for m in credit.read(1, count=1, timeout=WAIT_S)] == [b"+5"]


def test_many_transactions_of_many_threads_take_effect_one_by_one(client: Client) -> None:
    group = client.group("ledger")

    def work(name: str) -> None:
        for i in range(10):
            with client.transaction() as tx:
                tx.send(group, f"{name} {i} a")
                tx.send(group, f"{name} {i} b")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, ["w", "x", "y", "z"]))
    bodies = [m.body.decode() for m in group.read(1, count=80, timeout=WAIT_S)]
    assert [body[:-1] for body in bodies[::2]] == [body[:-1] for body in bodies[1::2]]
    assert len(set(bodies)) == 80


@pytest.mark.req("GRP-22", "GRP-23")
def test_a_lost_disk_is_let_in_again_and_catches_up(cluster: LocalCluster, client: Client) -> None:
    group = client.group("orders")
    group.send_many(b"%d" % i for i in range(100))
    group.flush(WAIT_S)
    cluster.kill("n2")
    folder = cluster.plan().node("n2").folder
    shutil.rmtree(folder)
    cluster.start("n2")
    cluster.await_ready()
    group.send(b"100").number(WAIT_S)
    assert bodies_from(cluster, "n2", "orders", 101) == [b"%d" % i for i in range(101)]


def test_one_stopped_node_stops_nobody(cluster: LocalCluster, client: Client) -> None:
    group = client.group("orders")
    group.send(b"before").number(WAIT_S)
    idle = next(p.plan.name for p in cluster.processes() if p.plan.name != sequencer_of(cluster))
    cluster.kill(idle, signal.SIGSTOP)
    group.send_many(b"%d" % i for i in range(1000))
    group.flush(WAIT_S)
    cluster.kill(idle, signal.SIGCONT)
    assert len(bodies_from(cluster, idle, "orders", 1001)) == 1001


def test_large_and_empty_messages_and_keys_come_back_as_they_were(client: Client) -> None:
    group = client.group("orders")
    large = bytes(range(256)) * 4096
    group.send(b"")
    group.send(large)
    group.send("text", key="k", headers=b"h").number(WAIT_S)
    messages = list(group.read(1, count=3, timeout=WAIT_S))
    assert [m.body for m in messages] == [b"", large, b"text"]
    assert (messages[2].key, messages[2].headers) == (b"k", b"h")


def test_a_reader_that_starts_now_gets_only_what_comes(client: Client) -> None:
    group = client.group("orders")
    group.send(b"old").number(WAIT_S)
    reader = group.read(None, count=1, timeout=WAIT_S)
    head = group.head()
    group.send(b"new")
    message = next(reader)
    assert (message.number, message.body) == (head + 1, b"new")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:0", "127.0.0.1:99999", ":1", ""])
def test_an_address_that_is_none_is_named(address: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, NotConnectedError)):
        samcast.connect(address, folder=tmp_path)


def run_samcast(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "samcast.cli.main", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)


def test_nodes_that_were_formatted_by_hand_make_a_cluster(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    plan = cluster.make(3)
    for node in plan.nodes:
        shutil.rmtree(node.folder)
        config = ("--config", str(plan.path), "--name", node.name)
        assert run_samcast("format", *config).returncode == 0
        again = run_samcast("format", *config)
        assert (again.returncode, again.stderr.count(b"\n")) == (1, 1)
        assert b"not empty" in again.stderr
    cluster.start_all()
    try:
        cluster.await_ready()
        with samcast.connect(cluster.address) as client:
            assert client.group("orders").send(b"x").number(WAIT_S) == 1
    finally:
        cluster.stop_all()


def test_a_folder_in_use_and_a_port_in_use_are_named(cluster: LocalCluster) -> None:
    plan = cluster.plan()
    config = ("--config", str(plan.path), "--name", "n1")
    second = run_samcast("node", *config)
    assert second.returncode == 1
    assert b"in use by another process" in second.stderr
    other = plan.path.with_name("other.toml")
    other.write_text(plan.path.read_text().replace('folder = "n1"', 'folder = "elsewhere"'))
    third = run_samcast("node", "--config", str(other), "--name", "n1")
    assert third.returncode == 1
    assert b"can't listen" in third.stderr


def test_groups_are_made_and_listed_and_the_doctor_looks(cluster: LocalCluster) -> None:
    folder = ("--dir", str(cluster.folder))
    assert b"has id" in run_samcast("group", "create", "orders", *folder).stdout
    assert run_samcast("send", "orders", *folder, stdin=b"a\nb\n").returncode == 0
    listed = json.loads(run_samcast("group", "list", "--json", *folder).stdout)
    assert [group["name"] for group in listed] == ["orders"]
    healthy = run_samcast("doctor", *folder)
    assert (healthy.returncode, b"no trouble" in healthy.stdout) == (0, True)
    cluster.kill("n2")
    ill = run_samcast("doctor", *folder)
    assert ill.returncode == 1
    assert b"n2 is down" in ill.stdout


def test_a_folder_that_is_up_is_not_brought_up_again(cluster: LocalCluster) -> None:
    folder = ("--dir", str(cluster.folder))
    again = run_samcast("up", "--plain", *folder)
    assert (again.returncode, b"is up already" in again.stderr) == (1, True)
    other = run_samcast("up", "--detach", "--nodes", "5", *folder)
    assert (other.returncode, b"has 3 nodes" in other.stderr) == (1, True)
    assert run_samcast("up", "--detach", *folder).returncode == 0


def test_a_cluster_is_not_up_if_somebody_else_has_a_port(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:
        cluster = LocalCluster(Path(short))
        node = cluster.make(3).nodes[0]
        with socket.create_server((node.host, node.port)):
            up = run_samcast("up", "--detach", "--dir", short)
        assert up.returncode == 1
        assert b"n1 doesn't answer" in up.stderr
        assert b"can't listen" in up.stderr
        assert not any(process.pid for process in cluster.processes())


def test_a_cluster_that_was_started_elsewhere_is_seen_and_not_called_down(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "cluster.toml").write_text(cluster.plan().path.read_text())
    folder = ("--dir", str(tmp_path))
    down = run_samcast("down", *folder)
    assert (down.returncode, b"still answer: n1 at" in down.stderr) == (1, True)
    assert run_samcast("status", *folder).returncode == 0
    assert b"no trouble" in run_samcast("doctor", *folder).stdout
    one = cluster.address.split(",")[1]
    said = json.loads(run_samcast("status", "--json", "--cluster", one).stdout)
    assert [node["name"] for node in said["nodes"]] == ["n1", "n2", "n3"]
    assert b"no trouble" in run_samcast("doctor", "--cluster", one).stdout
    assert run_samcast("send", "orders", *folder, stdin=b"x\n").returncode == 0


def test_a_stopped_cluster_and_a_group_that_is_not_there_are_named(cluster: LocalCluster) -> None:
    folder = ("--dir", str(cluster.folder))
    nope = run_samcast("read", "nope", *folder)
    assert (nope.returncode, b"there is no group 'nope'" in nope.stderr) == (1, True)
    assert json.loads(run_samcast("group", "list", "--json", *folder).stdout) == []
    run_samcast("down", *folder)
    assert run_samcast("status", *folder).returncode == 1
    assert b"the cluster is stopped" in run_samcast("doctor", *folder).stdout


@pytest.mark.req("OPS-08")
def test_a_bench_measures_and_leaves_nothing(tmp_path: Path) -> None:
    bench = run_samcast("bench", "send", "one", "large", "restart", "--scale", "0.01", "--json",
                        "--dir", str(tmp_path))  # fmt: skip
    assert bench.returncode == 0, bench.stderr
    results = json.loads(bench.stdout)
    assert results["send"]["read_back"] == results["large"]["read_back"] == "equal"
    assert list(tmp_path.iterdir()) == []
    assert b"no such measurement" in run_samcast("bench", "speed").stderr


def test_the_command_line_sends_reads_and_tells_the_status(cluster: LocalCluster) -> None:
    folder = ("--dir", str(cluster.folder))
    sent = run_samcast("send", "orders", *folder, stdin=b"one\ntwo\n")
    assert (sent.returncode, sent.stderr) == (0, b"")
    assert run_samcast("read", "orders", *folder).stdout == b"1\tone\n2\ttwo\n"
    assert run_samcast(
        "read", "orders", "--raw", "--from", "2", "--node", "n3", *folder
    ).stdout == (b"two\n")
    status = json.loads(run_samcast("status", "--json", *folder).stdout)
    assert status["address"] == cluster.address
    assert [node["name"] for node in status["nodes"]] == ["n1", "n2", "n3"]
    assert sum(node["sequencing"] for node in status["nodes"]) == 1
    assert run_samcast("down", *folder).returncode == 0
    assert not any(process.pid for process in cluster.processes())


def test_a_pipe_that_is_closed_early_ends_the_command_without_a_word(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        client.group("orders").send_many(b"x" * 1000 for _ in range(2000))
    command = [sys.executable, "-m", "samcast.cli.main", "read", "orders", "--dir",
               str(cluster.folder)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline().startswith(b"1\t")
        reading.stdout.close()
        assert reading.stderr.read() == b""
        assert reading.wait(WAIT_S) in (0, 1)


def test_clients_of_the_same_machine_may_use_a_unix_socket(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:  # The test's own folder has too long a name.
        cluster = LocalCluster(Path(short))
        plan = cluster.make(3)
        assert all(node.socket for node in plan.nodes)
        with running(cluster), samcast.connect(f"unix:{plan.nodes[1].socket}") as client:
            assert client.status()["name"] == "n2"
            assert client.group("orders").send(b"x").number(WAIT_S) == 1
            cluster.kill("n2")  # It knows the others by what it was told.
            assert client.group("orders").send(b"y").number(WAIT_S) == 2
        assert list(Path(short).glob("n[13].sock")) == []
    with pytest.raises(NotConnectedError, match=r"unix:.*gone\.sock"):
        samcast.connect(f"unix:{tmp_path}/gone.sock")
