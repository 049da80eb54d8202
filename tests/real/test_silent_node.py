"""A listener that takes connections and never says a word: the client goes on without it."""

import socket
from collections.abc import Iterator

import pytest

import samcast
from samcast.errors import NotConnectedError
from samcast.runtime.local_cluster import LocalCluster

WAIT_S = 30.0


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(WAIT_S)
        yield made


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


def says_farewell(listener: socket.socket) -> bool:
    """Whether the next caller has hung up."""
    caller, _ = listener.accept()
    with caller:
        caller.settimeout(WAIT_S)
        try:
            while caller.recv(4096):
                pass
        except ConnectionResetError:
            pass
    return True


def test_the_client_says_so_and_keeps_no_connection(silent: socket.socket) -> None:
    with pytest.raises(NotConnectedError, match="no answer"):
        samcast.connect(address_of(silent))
    assert says_farewell(silent)


def test_the_client_takes_another_node_and_keeps_no_connection(
    silent: socket.socket, cluster: LocalCluster
) -> None:
    # The second address is tried first.
    with samcast.connect(f"{cluster.address.split(',')[0]},{address_of(silent)}") as client:
        assert client.group("orders").send(b"x").number(WAIT_S) == 1
        assert says_farewell(silent)
