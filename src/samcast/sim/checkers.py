"""One class per promise, outside the roles: what must hold of the whole cluster at every moment.

The letters are those of the list of faults: A agreement, U uniqueness, O order, C only committed,
D durable, K copies, F fencing, T transactions, S sound content, M monotone, N names, R bounded; J,
places of disks, is in `copies`; L, liveness, is judged by the runner at the end. Each checker looks
at facts: what was committed, delivered, confirmed, voted and stored.
"""

from samcast.group.storage import BatchKey
from samcast.wire.order import (
    FOREVER,
    ROLE_DATA,
    AnyEntry,
    CollectEntry,
    ConfigEntry,
    Configuration,
    DecisionEntry,
    Epoch,
    GroupRemovedEntry,
    KeepEntry,
    LeaseEntry,
    OpenEntry,
    RunEntry,
    SenderRemovedEntry,
)

Identity = tuple[bytes, int]  # who sent it, its place in that sender's own sequence


class Violation(Exception):  # noqa: N818 - a verdict, not an error of the program
    """A promise was broken."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise
        self.detail = detail


class Facts:
    """What is known of a run, and the only place that checkers share."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration  # the newest that is committed
        self.settled = 0  # the newest in which somebody was elected, by committed entries
        self.entries: list[AnyEntry] = []  # committed, from index 1
        self.hashes: list[bytes] = []
        self.heads: dict[int, int] = {}
        self.number_of_run: dict[BatchKey, int] = {}
        self.digest_of_run: dict[BatchKey, bytes] = {}
        self.sent: dict[bytes, Identity] = {}  # body -> identity
        self.given_up: dict[Identity, None] = {}  # the sender was told that nobody can know
        self.body_at: dict[tuple[int, int], bytes] = {}  # (group, number) -> body
        self.number_of: dict[Identity, tuple[int, int]] = {}
        self.confirmed: dict[Identity, tuple[int, int]] = {}  # number 0: kept no longer
        self.confirmed_bodies: dict[bytes, Identity] = {}  # the very bytes that were confirmed
        self.accepted: dict[Epoch, dict[int, int]] = {}  # epoch -> uuid -> index
        self.promised: dict[int, Epoch] = {}  # uuid -> highest epoch promised to anybody
        self.payloads: dict[tuple[BatchKey, bytes], dict[int, bool]] = {}  # on which disks (uuid)
        self.snapshots: dict[int, bytes] = {}
        self.transactions: dict[Identity, int] = {}  # how many messages belong to it
        self.inside: dict[tuple[int, int], None] = {}  # (group, number) behind a share's first

    @property
    def committed(self) -> int:
        """Index up to which somebody has said that the log is committed."""
        return len(self.entries)


class Agreement:
    """A: one entry per index, one message per number, whoever looks."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_committed(self, index: int, entry_hash: bytes) -> None:
        facts = self._facts
        if index <= facts.committed and facts.hashes[index - 1] != entry_hash:
            raise Violation("A", f"index {index} was committed with two contents")

    def on_folded(self, who: str, index: int, entry_hash: bytes) -> None:
        facts = self._facts
        if 0 < index <= facts.committed and facts.hashes[index - 1] != entry_hash:
            raise Violation("A", f"{who} folded another log than was committed, at index {index}")

    def on_snapshot(self, who: str, index: int, state: bytes) -> None:
        if self._facts.snapshots.setdefault(index, state) != state:
            raise Violation("A", f"{who} has another core state at index {index}")

    def on_delivered(self, who: str, group: int, number: int, body: bytes) -> None:
        if self._facts.body_at.setdefault((group, number), body) != body:
            raise Violation("A", f"{who} was given another message as {group}/{number}")

    def on_confirmed(self, identity: Identity, group: int, number: int) -> None:
        told = self._facts.confirmed.get(identity)
        if told is not None and number and told[1] and told != (group, number):
            raise Violation("A", f"{identity} was confirmed as {told} and as {group}/{number}")
        known = self._facts.number_of.get(identity)
        if known is not None and number and known != (group, number):
            raise Violation("A", f"{identity} is {known}, its sender was told {group}/{number}")


class Uniqueness:
    """U: no message and no run ever has two numbers."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_numbered(self, key: BatchKey, number: int) -> None:
        if self._facts.number_of_run.setdefault(key, number) != number:
            raise Violation(
                "U", f"run {key} has numbers {self._facts.number_of_run[key]}, {number}"
            )

    def on_delivered(self, identity: Identity, group: int, number: int) -> None:
        at = self._facts.number_of.setdefault(identity, (group, number))
        if at != (group, number):
            raise Violation("U", f"message {identity} is {at} and {(group, number)}")


class Order:
    """O: numbers without gaps, members in number order, each sender's messages in its own order."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._next: dict[str, int] = {}
        self._last: dict[tuple[bytes, int], tuple[int, int]] = {}  # sender -> number, place

    def on_numbered(self, group: int, first: int, count: int) -> None:
        head = self._facts.heads.get(group, 0)
        if first != head + 1:
            raise Violation("O", f"group {group} goes from {head} to {first}")
        self._facts.heads[group] = head + count

    def on_member(self, who: str, number_next: int) -> None:
        self._next[who] = number_next

    def on_delivered(self, who: str, number: int) -> None:
        if self._next[who] not in (0, number):  # 0: it begins with whatever there is
            raise Violation("O", f"{who} was given {number}, {self._next[who]} was next")
        self._next[who] = number + 1

    def on_first_seen(self, identity: Identity, group: int, number: int) -> None:
        """Called once per number, in number order per group."""
        sender, place = identity
        before, last = self._last.get((sender, group), (0, 0))
        if place <= last:
            raise Violation(
                "O", f"{sender!r} sent {place} before {last}, numbered {number}, {before}"
            )
        for skipped in range(last + 1, place):
            if (sender, skipped) not in self._facts.given_up:
                raise Violation("O", f"{sender!r}: {skipped} is missing before {place}")
        self._last[(sender, group)] = (number, place)


class CommittedOnly:
    """C: nothing is delivered, folded or told that k disks have not accepted in one epoch."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_committed(self, epoch: Epoch, index: int, configuration: Configuration) -> None:
        accepted = self._facts.accepted.get(epoch, {})
        listed = [s.uuid for s in configuration.servers]
        holders = sum(1 for uuid in listed if accepted.get(uuid, 0) >= index)
        if holders < configuration.k_commit:
            raise Violation("C", f"index {index} was committed in {epoch} with {holders} accepts")

    def on_folded(self, who: str, index: int) -> None:
        if index > self._facts.committed:
            raise Violation(
                "C", f"{who} folded index {index}, committed is {self._facts.committed}"
            )

    def on_delivered(self, who: str, group: int, number: int) -> None:
        if number > self._facts.heads.get(group, 0):
            raise Violation("C", f"{who} was given {group}/{number}, which is not committed")

    def on_confirmed(self, identity: Identity, group: int, number: int) -> None:
        if number > self._facts.heads.get(group, 0):
            raise Violation("C", f"{identity} was told {group}/{number}, which is not committed")


class Copies:
    """K: whatever is committed lies on k_data listed disks, none of which gave it up."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_numbered(self, key: BatchKey, digest: bytes, configuration: Configuration) -> None:
        disks = self._facts.payloads.get((key, digest), {})
        listed = sum(1 for s in configuration.servers if s.uuid in disks)
        if listed < configuration.k_data:
            raise Violation("K", f"{key} was committed with {listed} copies on listed disks")

    def on_changed(
        self, before: Configuration, after: Configuration, wanted: list[BatchKey]
    ) -> None:
        """Data servers that go by order leave nothing behind that the others lack. (A disk that is
        replaced under its server's name is gone already, and whoever has no payloads takes none
        along.)"""
        listed = [s.node for s in after.servers]
        stay = all(s.node in listed for s in before.servers if s.roles & ROLE_DATA)
        if stay and after.k_data <= before.k_data:
            return
        for key in wanted:
            disks = self._facts.payloads.get((key, self._facts.digest_of_run[key]), {})
            left = sum(1 for s in after.servers if s.uuid in disks)
            if left < after.k_data:
                raise Violation("K", f"{key} has {left} copies after a change of servers")


class Fencing:
    """F: one sequencer per epoch; nobody accepts below what it promised."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._logs: dict[tuple[Epoch, int], bytes] = {}
        self._elected: dict[Epoch, tuple[int, int]] = {}

    def on_elected(self, epoch: Epoch, node: int, life: int) -> None:
        if self._elected.setdefault(epoch, (node, life)) != (node, life):
            raise Violation("F", f"epoch {epoch} was led twice")

    def on_promised(self, uuid: int, epoch: Epoch) -> None:
        self._facts.promised[uuid] = max(epoch, self._facts.promised.get(uuid, epoch))

    def on_accepted(self, uuid: int, epoch: Epoch) -> None:
        promised = self._facts.promised.get(uuid)
        if promised is not None and epoch < promised:
            raise Violation("F", f"disk {uuid} accepted in {epoch} after it promised {promised}")


class Soundness:
    """S: what is delivered is what was sent, to the last byte."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_delivered(self, who: str, group: int, number: int, body: bytes) -> Identity:
        identity = self._facts.sent.get(body)
        if identity is None:
            raise Violation("S", f"{who} was given bytes as {group}/{number} that nobody sent")
        return identity


class Monotone:
    """M: what a process has folded, and what a disk has promised, never goes back."""

    def __init__(self) -> None:
        self._folded: dict[tuple[str, int], int] = {}
        self._promised: dict[int, Epoch] = {}
        self._low_water: dict[int, int] = {}

    def on_folded(self, who: str, life: int, index: int) -> None:
        if index < self._folded.get((who, life), 0):
            raise Violation("M", f"{who} went back to index {index}")
        self._folded[(who, life)] = index

    def on_disk(self, uuid: int, promised: Epoch) -> None:
        if promised < self._promised.get(uuid, promised):
            raise Violation("M", f"disk {uuid} forgot its promise {self._promised[uuid]}")
        self._promised[uuid] = promised

    def on_log(self, uuid: int, low_water: int, *, is_known: bool) -> None:
        """A log that rot has hit says nothing, and begins anew with the install that mends it."""
        if not is_known:
            self._low_water.pop(uuid, None)
            return
        if low_water < self._low_water.get(uuid, 0):
            raise Violation("M", f"disk {uuid} has low water {low_water} again")
        self._low_water[uuid] = low_water


class Transactions:
    """T: a transaction's messages are numbered together or not at all, and once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._seen: dict[tuple[Identity, bytes], dict[int, None]] = {}

    def on_seen(self, tx: Identity, attempt: bytes, part: int) -> None:
        """One message of a transaction was numbered."""
        for other in [a for t, a in self._seen if t == tx]:
            if other != attempt:
                raise Violation("T", f"transaction {tx} took effect in two attempts")
        self._seen.setdefault((tx, attempt), {})[part] = None

    def on_decided(self, entry: AnyEntry) -> None:
        """Remember where members may not stop."""
        if type(entry) is DecisionEntry:
            for part in entry.parts:
                count = sum(ref.count for ref in part.stages)
                for number in range(part.number_first + 1, part.number_first + count):
                    self._facts.inside[(part.group, number)] = None

    def on_position(self, who: str, group: int, number_next: int) -> None:
        """A member has handed over everything below this number."""
        if (group, number_next) in self._facts.inside:
            raise Violation("T", f"{who} was given a part of a transaction, up to {number_next}")

    def check_whole(self) -> None:
        """At a moment when every committed number was seen."""
        for (tx, _), parts in self._seen.items():
            if len(parts) != self._facts.transactions[tx]:
                raise Violation("T", f"transaction {tx} took effect in part: {list(parts)}")


class Collection:
    """G: nothing is given up that was numbered, unless the order says so, and then nothing of a
    group that keeps all, nor what anybody holds a lease on.

    What somebody who reused an id sent under the same key, but with other bytes, may go.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._runs: dict[BatchKey, list[tuple[int, bytes]]] = {}  # last number, digest
        self._leases: dict[tuple[int, str], int] = {}
        self._letting_go: dict[int, bool] = {}
        self._collected: dict[int, int] = {}

    def on_dropped(self, who: str, key: BatchKey, digests: list[bytes]) -> None:
        if self._facts.digest_of_run.get(key) in digests and not self.gone(key):
            raise Violation("G", f"{who} dropped {key}, which is committed")

    def on_committed(self, entry: AnyEntry) -> None:
        """Kept by itself, apart from the fold that is judged."""
        for key, number, count, digest in numbered_of(entry):
            self._runs.setdefault(key, []).append((number + count - 1, digest))
        if type(entry) is LeaseEntry:
            self._leases[(entry.group, entry.name)] = entry.number
        elif type(entry) is KeepEntry:
            keep = entry.keep
            self._letting_go[entry.group] = bool(keep.count or keep.fold) and keep.count != FOREVER
        elif type(entry) is CollectEntry and self._letting_go.get(entry.group):
            leased = [n for (group, _), n in self._leases.items() if group == entry.group]
            number = self._collected.get(entry.group, 0)
            if entry.number <= min(leased, default=entry.number):
                self._collected[entry.group] = max(number, entry.number)

    def on_collected(self, who: str, key: BatchKey) -> None:
        if not self.gone(key):
            raise Violation("G", f"{who} gave {key} up, {self._runs[key]}; it is needed")

    def gone(self, key: BatchKey) -> list[bytes]:
        """Digests of what was under an id and may go. Whoever uses an id again after that, with
        other content, is not recognised, and has a number of its own."""
        collected = self._collected.get(key[0], 0)
        return [digest for last, digest in self._runs.get(key, ()) if last <= collected]

    def on_lost(self, who: str, group: int, number: int, is_leased: bool) -> None:
        """A member heard that what it waits for is gone."""
        if is_leased or number > self._collected.get(group, 0):
            raise Violation("G", f"{who} lost messages up to {number} of {group}")


class Bounded:
    """R: whatever roles keep never grows beyond the limits that their settings give.

    A disk may give back more than that at a start: what was numbered meanwhile is among it. Beside
    that there may be so much as has room of its own.
    """

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, int, str], int] = {}

    def on_size(
        self, who: str, life: int, what: str, size: int, most: int, beside: int = 0
    ) -> None:
        before = self._sizes.setdefault((who, life, what), size + beside)
        self._sizes[(who, life, what)] = size if not beside else before
        if size > max(most, before):
            raise Violation("R", f"{who} keeps {size} {what}, {most} is the limit")


class Names:
    """N: whoever hears that its name was given up, or taken by another, hears the truth."""

    def __init__(self) -> None:
        self._opened: dict[tuple[int, bytes], list[OpenEntry]] = {}
        self._removed: dict[tuple[int, bytes], int] = {}  # the highest incarnation that was meant
        self._groups_removed: dict[int, None] = {}

    def on_committed(self, entry: AnyEntry) -> None:
        if type(entry) is OpenEntry:
            self._opened.setdefault((entry.scope, entry.sender), []).append(entry)
        elif type(entry) is SenderRemovedEntry:
            name = (entry.scope, entry.sender)
            self._removed[name] = max(self._removed.get(name, 0), entry.below or FOREVER)
        elif type(entry) is GroupRemovedEntry:
            self._groups_removed[entry.group] = None

    def on_removed(self, who: str, scope: int, name: bytes, opened: int) -> None:
        """A process that had opened its name, with this incarnation, heard that it can't go on."""
        is_removed = opened <= self._removed.get((scope, name), -1)
        if not is_removed and scope not in self._groups_removed:
            raise Violation("N", f"{who} heard that its name was given up; it is there")

    def on_no_group(self, who: str, group: int) -> None:
        """A sender heard that its group is gone."""
        if group not in self._groups_removed:
            raise Violation("N", f"{who} heard that group {group} is gone; it is there")

    def on_fenced(self, who: str, scope: int, name: bytes, incarnation: int, nonce: int) -> None:
        """A process heard that another one has taken its name."""
        if (scope, name) in self._removed:
            return  # It may have begun anew, from any incarnation.
        others = [e for e in self._opened.get((scope, name), []) if e.nonce != nonce]
        if not any(e.incarnation >= incarnation for e in others):
            raise Violation("N", f"{who} heard that another one has its name; nobody has")


class Durable:
    """D: whatever was confirmed is delivered, under the number that its sender was told."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def check(self) -> None:
        """When all committed numbers have been delivered."""
        facts = self._facts
        for identity, (group, number) in facts.confirmed.items():
            at = facts.number_of.get(identity)
            if at is None:
                raise Violation("D", f"{identity} was confirmed as {group}/{number} and is lost")
            if number and at != (group, number):
                raise Violation("A", f"{identity} is {at}, its sender was told {group}/{number}")
        for body, identity in facts.confirmed_bodies.items():
            if facts.body_at[facts.number_of[identity]] != body:
                raise Violation("D", f"{identity} was confirmed, but with other bytes")


def numbered_of(entry: AnyEntry) -> list[tuple[BatchKey, int, int, bytes]]:
    """Payload, first number, count and digest of everything that an entry numbers."""
    if type(entry) is RunEntry:
        key = (entry.group, entry.sender, entry.incarnation, entry.counter_first, 0)
        return [(key, entry.number_first, entry.count, entry.digest)]
    found: list[tuple[BatchKey, int, int, bytes]] = []
    if type(entry) is DecisionEntry:
        for part in entry.parts:
            number = part.number_first
            for ref in part.stages:
                key = (part.group, entry.owner, entry.incarnation, entry.tx, ref.stage)
                found.append((key, number, ref.count, ref.digest))
                number += ref.count
    return found


def configuration_of(entry: AnyEntry) -> Configuration | None:
    """The configuration that an entry puts in force."""
    return entry.configuration if type(entry) is ConfigEntry else None
