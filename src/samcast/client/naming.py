"""The names in use: who has them, and giving one up."""

from dataclasses import dataclass

from samcast.client.blocking import Client
from samcast.errors import RefusedError, WaitTimeoutError
from samcast.wire.group import OutcomeKind, SenderRemovalRequest
from samcast.wire.names import Named
from samcast.wire.order import CELL, named_sender

ASK_S = 30.0
TRANSACTIONS, SENDER, ANONYMOUS = "transactions", "sender", "anonymous"


@dataclass(frozen=True, slots=True)
class NameInUse:
    """A name of transactions, which is the cluster's, or of a sender, which is its group's."""

    name: str  # as its user wrote it, or its id where nobody said
    kind: str
    group: str  # "": of the cluster
    done: int  # messages, or transactions
    last: int  # number of its last message, or index of the log at its last use; 0: none


def names_in_use(client: Client, group: str | None = None) -> list[NameInUse]:
    """All of them, or one group's, from committed state."""
    groups = _ids(client)
    if group is not None and group not in groups:
        there = ", ".join(sorted(groups)[:10]) or "none"
        raise RefusedError(f"there is no group {group!r} here; there are: {there}")
    scopes = {"": CELL, **groups} if group is None else {group: groups[group]}
    found = []
    for name, scope in scopes.items():
        kind = SENDER if scope else TRANSACTIONS
        for one in _of_scope(client, scope):
            label = one.label or one.sender.hex()
            what = ANONYMOUS if one.is_anonymous else kind
            found.append(NameInUse(label, what, name, one.done, one.last))
    return sorted(found, key=lambda one: (one.group, one.kind, one.name))


def remove_name(client: Client, name: str, group: str | None = None) -> None:
    """Give a name up; whoever uses it later begins anew."""
    scope = CELL if group is None else _ids(client).get(group)
    where = "transactions of this cluster" if group is None else f"senders of group {group!r}"
    wanted = named_sender(name)
    found = [
        one
        for one in (_of_scope(client, scope) if scope is not None else ())
        if one.sender == wanted or one.sender.hex() == name
    ]
    if scope is None or not found:
        raise RefusedError(
            f"there is no name {name!r} among the {where}; `samcast name list` shows all"
        )
    engine = client.engine
    request = SenderRemovalRequest(scope, found[0].sender, found[0].incarnation)
    try:
        outcome = engine.call(engine.propose(request), ASK_S)
    except TimeoutError:
        raise WaitTimeoutError(
            f"{name!r} was not removed within {ASK_S:.0f} s: are enough nodes up (`samcast"
            " doctor`)?"
        ) from None
    if outcome.kind is not OutcomeKind.DONE:
        raise RefusedError(
            f"{name!r} can't be removed yet: of the {where} very many were, and no message was sent"
            " since; send one, then try again"
        )
    if outcome.value:
        raise RefusedError(
            f"{name!r} was opened again just now, and whoever did that keeps it; to remove it all"
            " the same, try again"
        )


def _ids(client: Client) -> dict[str, int]:
    listed = client.current_status().get("groups", [])
    assert isinstance(listed, list)
    return {str(group["name"]): int(group["id"]) for group in listed}


def _of_scope(client: Client, scope: int) -> list[Named]:
    engine = client.engine
    found: list[Named] = []
    above, is_more = b"", True
    while is_more:
        try:
            said = engine.call(engine.names(scope, above), ASK_S)
        except TimeoutError:
            raise WaitTimeoutError(
                f"no node told within {ASK_S:.0f} s which names there are (`samcast doctor`)"
            ) from None
        found += said.names
        is_more = said.is_more and bool(said.names)
        above = said.names[-1].sender if said.names else b""
    return found
