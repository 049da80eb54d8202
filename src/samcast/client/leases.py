"""Whose leases keep which messages of a cluster, as the node that leads tells it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from samcast.client.blocking import Client, connect
from samcast.errors import SamcastError
from samcast.wire.order import Keep


class HeldLease(Struct, frozen=True):
    """All messages of the group above a number stay."""

    group: str
    name: str
    number: int
    ttl_s: float
    left_s: float | None  # if nobody renews it; None: nobody leads who could tell


def groups_of(client: Client) -> list[dict[str, Any]]:
    """What there is of all groups, by the node that leads, or by ours where that one is silent."""
    ours = client.status()
    names = client.engine.node_names
    leading = names.get(int(str(ours.get("leader", 0))), "")
    found: Mapping[str, object] = ours
    for name, host, port in client.nodes:
        if name == leading and not ours["sequencing"]:
            try:
                with connect(f"{host}:{port}") as other:
                    found = other.status()
            except (SamcastError, TimeoutError):
                continue  # What ours knows is as good, but for the time that is left.
    groups = found.get("groups", [])
    assert isinstance(groups, list)
    return groups


def leases_of(groups: list[dict[str, Any]]) -> list[HeldLease]:
    """All of them, those first that keep the oldest messages of their group."""
    found = [
        HeldLease(group["name"], name, lease["number"], lease["ttl_s"], lease.get("left_s"))
        for group in groups
        for name, lease in group["leases"].items()
    ]
    return sorted(found, key=lambda lease: (lease.group, lease.number, lease.name))


def holder_of(group: dict[str, Any]) -> HeldLease | None:
    """The lease for which messages are there that would go by their group's settings."""
    lowest = next(iter(leases_of([group])), None)
    keep = Keep(**group["keep"])
    if lowest is None or not keep.lets_go:
        return None
    going = group["head"]
    if keep.has_bounds:  # By size and age, only servers know: perhaps the oldest there is.
        by_count = going - keep.count if keep.count else 0
        going = max(by_count, group["oldest"] if keep.size or keep.age_ms else 0)
    if keep.fold:
        numbers = [found["number"] for found in group["checkpoints"]]
        going = min(going, numbers[0] if len(numbers) > 1 else 0)
    return lowest if lowest.number < going else None
