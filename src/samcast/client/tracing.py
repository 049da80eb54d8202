"""The way of one message through a cluster, as its nodes remember it."""

import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import msgspec

from samcast.client.blocking import connect
from samcast.client.engine import Engine
from samcast.errors import RefusedError, SamcastError, WaitTimeoutError
from samcast.limits import NODE_MAX
from samcast.wire.session import node_of

ASK_S = 5.0
BUSY_PAUSE_S = 0.05  # others may be asking, too


class Happened(msgspec.Struct, frozen=True):
    """Something that a node did with the message."""

    at_ms: float  # after the first of all
    node: str
    what: str
    peer: str = ""  # whom it came from or went to, "" where that says nothing
    epoch: int = 0  # in which it was ordered, 0 where that says nothing


class Trace(msgspec.Struct, frozen=True):
    """What all nodes that answered know together."""

    group: str
    number: int
    number_first: int  # of the batch that it travelled in
    count: int
    index: int  # in the order; 0 if its entry isn't kept any more
    silent: tuple[str, ...]  # nodes that didn't answer
    began: str  # when the first step was, UTC; "" if none is remembered
    steps: tuple[Happened, ...]


def trace(address: str, group: str, number: int) -> Trace:
    """Ask every node of a cluster what it knows of a message."""
    with connect(address) as client:
        places = {name: f"{host}:{port}" for name, host, port in client.nodes}
        names = client.engine.node_names
    groups = _groups(list(places.values()))
    heads = {listed["name"]: 0 for listed in groups}
    for listed in groups:
        heads[listed["name"]] = max(heads[listed["name"]], listed["head"])
    if group not in heads:
        there = ", ".join(sorted(heads)[:10]) or "none"
        raise RefusedError(f"there is no group {group!r} here; there are: {there}")
    if not 1 <= number <= heads[group]:
        raise RefusedError(f"group {group!r} has no message {number}; its newest is {heads[group]}")
    group_id = next(listed["id"] for listed in groups if listed["name"] == group)
    told = [_ask(place, lambda engine: engine.trace(group_id, number)) for place in places.values()]
    silent = [name for name, node in zip(places, told, strict=True) if not node]
    return _together(group, number, [node for node in told if node], tuple(silent), names)


def _groups(places: list[str]) -> list[dict[str, Any]]:
    """The groups of all nodes that know what there is; an error if there is none in time."""
    limit = time.monotonic() + ASK_S
    while True:
        said = [_ask(place, lambda engine: engine.status(), is_patient=False) for place in places]
        current = [status for status in said if status.get("is_current")]
        if current:
            return [listed for status in current for listed in status.get("groups", [])]
        if time.monotonic() > limit:
            raise WaitTimeoutError(
                "no node has heard since its start what there is: too few of them are up, or"
                " nobody leads (`samcast doctor` says why)"
            )
        time.sleep(BUSY_PAUSE_S)


def _ask(
    place: str,
    question: Callable[[Engine], Coroutine[Any, Any, bytes]],
    is_patient: bool = True,
) -> dict[str, Any]:
    """What one node says, if we are patient once it knows what there is; nothing if it doesn't."""
    limit = time.monotonic() + ASK_S
    try:
        with connect(place) as client:
            while True:
                answer = client.engine.call(question(client.engine), ASK_S)
                said: dict[str, Any] = msgspec.json.decode(answer)
                is_early = is_patient and not said.get("is_current", True)
                if not (is_early or "is_busy" in said) or time.monotonic() > limit:
                    break
                time.sleep(BUSY_PAUSE_S)
    except (SamcastError, TimeoutError):
        return {}
    return said if "is_busy" not in said else {}


def _together(
    group: str,
    number: int,
    told: list[dict[str, Any]],
    silent: tuple[str, ...],
    names: dict[int, str],
) -> Trace:
    steps = [
        (
            step["at_s"],
            node["name"],
            step["what"],
            _peer(step["peer"], node["id"], names),
            step["epoch"],
        )
        for node in told
        for step in node["steps"]
    ]
    steps.sort()
    first_s = steps[0][0] if steps else 0.0
    batch = next((node for node in told if "number_first" in node), {})
    return Trace(
        group,
        number,
        batch.get("number_first", number),
        batch.get("count", 0),
        max((node.get("index", 0) for node in told), default=0),
        silent,
        datetime.fromtimestamp(first_s, UTC).isoformat(timespec="microseconds") if steps else "",
        tuple(Happened(round((at_s - first_s) * 1000, 3), *said) for at_s, *said in steps),
    )


def _peer(peer: int, own: int, names: dict[int, str]) -> str:
    if not peer:
        return ""
    if peer > NODE_MAX:
        node = node_of(peer)
        return f"a client of {'this node' if node == own else names.get(node, f'node {node}')}"
    return "itself" if peer == own else names.get(peer, f"node {peer}")
