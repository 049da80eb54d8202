"""A node's numbers for Prometheus, fetched from real nodes, and what else may come to that page."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import samcast
from samcast.runtime.cluster_file import host_and_port
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import MULTICAST
from tests.real.striking import pause

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def place_of(cluster: LocalCluster, name: str) -> tuple[str, int]:
    return host_and_port(cluster.plan().node(name).metrics)


def fetched(cluster: LocalCluster, name: str, path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*place_of(cluster, name), timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def numbers_of(cluster: LocalCluster, name: str) -> Numbers:
    status, text = fetched(cluster, name)
    assert status == 200
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[(sample.name, tuple(sorted(sample.labels.items())))] = sample.value
    return found


def numbers_once_stored(cluster: LocalCluster, name: str) -> Numbers:
    """Two nodes are enough for a confirmation; the third one may be a little later."""
    numbers = numbers_of(cluster, name)
    for _ in range(500):
        if value(numbers, "samcast_payload_bytes_total") > 500 * 100:
            break
        pause(0.02)
        numbers = numbers_of(cluster, name)
    return numbers


def value(numbers: Numbers, name: str, **labels: str) -> float:
    return numbers[(name, tuple(sorted(labels.items())))]


@pytest.mark.req("OPS-05")
def test_a_node_tells_what_it_did(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("counted")
        group.send_many([b"x" * 100] * 500)
        group.flush()
        assert len(list(group.read(1, count=500, timeout=10))) == 500
        found = {name: numbers_once_stored(cluster, name) for name in ("n1", "n2", "n3")}
    assert sum(value(numbers, "samcast_sequencing") for numbers in found.values()) == 1
    leading = next(n for n in found.values() if value(n, "samcast_sequencing"))
    assert value(leading, "samcast_messages_total", group="counted") == 500
    assert value(leading, "samcast_messages_of_all_groups_total") == 500
    for numbers in found.values():
        assert value(numbers, "samcast_connections", kind="nodes") == 2
        assert value(numbers, "samcast_payload_bytes_total") > 500 * 100
        if not MULTICAST:  # There payloads don't come by connections.
            assert value(numbers, "samcast_received_bytes_total") > 500 * 100
        for log in ("order", "data"):
            syncs = value(numbers, "samcast_syncs_total", log=log)
            assert syncs == value(numbers, "samcast_sync_seconds_count", log=log) > 0
        assert value(numbers, "samcast_turn_seconds_count") == value(numbers, "samcast_turns_total")
        assert value(numbers, "samcast_disk_full") == 0
    # Two are enough for a confirmation; the third may have had it from them.
    stored = [value(n, "samcast_stored_seconds_count") for n in found.values()]
    assert sum(count >= 1 for count in stored) >= 2
    assert sum(value(n, "samcast_confirmed_seconds_count") for n in found.values()) >= 1


def test_a_reader_that_lags_is_seen(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("slow")
        reading = iter(group.read(1))
        group.send(b"y" * 1_000_000).number(10)
        assert next(reading).number == 1
        for _ in range(60):  # more than a reader asks for at a time
            group.send(b"y" * 1_000_000)
        group.flush()
        lags = [
            value(numbers_of(cluster, name), "samcast_reader_lag", group="slow")
            for name in ("n1", "n2", "n3")
            if ("samcast_reader_lag", (("group", "slow"),)) in numbers_of(cluster, name)
        ]
        assert lags
        assert max(lags) > 0


def test_the_dashboard_asks_for_what_nodes_tell(cluster: LocalCluster) -> None:
    told = {name for name, _ in numbers_of(cluster, "n1")}
    told |= {family.name for family in text_string_to_metric_families(fetched(cluster, "n1")[1])}
    told |= {f"{name}_total" for name in told}
    dashboard = json.loads(Path("packaging/grafana.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"samcast_[a-z_]+", target["expr"])
    }
    assert len(asked) > 12
    assert asked <= told | {"samcast_node"}


@pytest.fixture
def page(cluster: LocalCluster) -> Iterator[tuple[str, int]]:
    place = place_of(cluster, "n1")
    yield place
    assert fetched(cluster, "n1")[0] == 200  # whatever came


def answer_to(place: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(place, timeout=10) as end:
        end.sendall(request)
        end.shutdown(socket.SHUT_WR)
        found = b""
        while piece := end.recv(65536):
            found += piece
    return found


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics SMTP\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"\x00\xff" * 100, b"400"),
        (b"", b"400"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n", b"431"),
    ],
)
def test_the_page_answers_whatever_comes(
    page: tuple[str, int], request_: bytes, code: bytes
) -> None:
    assert answer_to(page, request_).split(b" ")[1] == code


def test_those_who_ask_and_say_nothing_keep_nobody_from_asking(
    cluster: LocalCluster, page: tuple[str, int]
) -> None:
    silent = [socket.create_connection(page) for _ in range(100)]
    pause(0.2)
    assert fetched(cluster, "n1")[0] in (200, 503)
    with samcast.connect(cluster.address) as client:
        client.group("still").send(b"here").number(10)
    for end in silent:
        end.close()
    pause(0.2)
