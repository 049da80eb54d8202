"""Applications of a simulated world: senders, owners of transactions, members, an administrator.

A message's body names its sender, its place in the sender's sequence and the attempt, so a
checker can judge uniqueness and order without knowing anything of runs, ids or incarnations.
"""

from typing import TYPE_CHECKING, Any

from samcast.group.member import Deliver, Lost, Member
from samcast.group.owner import Decided, Owner, OwnerOpened, OwnerStopped, Transacted
from samcast.group.sender import Confirmed, Failed, Opened, Sender, Stopped, Submitted
from samcast.machine.ports import (
    Channel,
    Effect,
    Role,
)
from samcast.sim.checkers import Identity
from samcast.sim.world import Process
from samcast.wire.batch import Message, columns_from_messages
from samcast.wire.group import AnswerKind, Follow
from samcast.wire.order import ROLE_DATA

if TYPE_CHECKING:
    from samcast.sim.cluster import Cluster

LEASE_STEP = 6  # messages between two words of a member that holds a lease


class SenderApp:
    """Sends a sequence of messages through one sender; a named one survives crashes."""

    def __init__(
        self,
        cluster: "Cluster",
        process: Process,
        group: int,
        *,
        is_named: bool,
        contacts: tuple[int, ...] = (),
        channel: Channel = Channel.DATA,
        name: str = "",
    ) -> None:
        self._cluster = cluster
        self._name = name or process.name  # by which it is known, whatever process it runs in
        self.process = process
        self.group = group
        self.is_named = is_named
        self._contacts = contacts
        self._channel = channel
        self.key = self._name.encode()
        self._is_twin = False  # it reuses an id: what it hears may be about its former self
        self.is_removed = False  # the name was given up: it must not be used again
        self.attempt = 0
        self.place = 0  # messages handed over by this life
        self.goal = 0  # messages wanted
        self.is_open = not is_named
        self.is_over = False
        self._tokens: dict[int, tuple[int, list[bytes]]] = {}  # token -> first place, bodies
        self._token = 0
        process.on_effect = self._on_effect

    def start(self, twin_of: bytes = b"") -> None:
        """Begin a life; an unnamed one is another sender altogether, unless it reuses an id."""
        cluster = self._cluster
        if self.is_removed:
            self.is_over = True
            return
        self.attempt = cluster.next_attempt()
        self._is_twin = bool(twin_of)
        if twin_of:  # It may take the counters of what its former self has under way.
            facts = cluster.judge.facts
            lost = [(self.key, i) for i in range(1, self.place + 1)]
            facts.given_up.update(dict.fromkeys(i for i in lost if i not in facts.confirmed))
        if not self.is_named and self.process.boots:
            self.place = 0
            kind = "twin" if twin_of else self._name
            self.key = f"{kind}.{self.attempt}".encode()
        self.is_open = not self.is_named
        self._tokens.clear()
        name = self._name if self.is_named else ""
        sender = Sender(
            self.process.node,
            cluster.configuration,
            cluster.settings,
            cluster.world.chance,
            self.group,
            name,
            self._contacts,
            self._channel,
        )
        if twin_of:
            sender.id = twin_of
        self.process.start([sender])
        self.pump()

    @property
    def sender(self) -> Sender | None:
        """The role, while the process lives."""
        role = self.process.roles[0] if self.process.roles else None
        return role if isinstance(role, Sender) else None

    @property
    def is_idle(self) -> bool:
        """Everything wanted has an outcome; nothing is promised to who reuses an id."""
        if self.is_over or self._is_twin:
            return True
        return self.is_open and self.place >= self.goal and not self._tokens

    def want(self, count: int) -> None:
        """Send so many messages more."""
        self.goal += count
        self.pump()

    def pump(self) -> None:
        """Hand messages over, a few at a time."""
        chance = self._cluster.world.chance
        while self.process.is_up and self.is_open and self.place < self.goal:
            if len(self._tokens) >= self._cluster.outstanding_max or self.is_over:
                return
            count = min(chance.pick((1, 1, 1, 1, 1, 3)), self.goal - self.place)
            messages = [self._message(self.place + i + 1) for i in range(count)]
            self._token += 1
            self._tokens[self._token] = (self.place + 1, [m.body for m in messages])
            self.place += count
            columns = columns_from_messages(messages)
            self.process.post(0, Submitted(self._token, columns, count))
            self._cluster.judge.trace.add(
                self._cluster.world.now_us, self.process.name, "sent", group=self.group,
                sender=self.key.decode(), counter=self.place - count + 1, count=count,
            )  # fmt: skip

    def _message(self, place: int) -> Message:
        chance = self._cluster.world.chance
        padding = b"x" * chance.pick((0, 1, 7, 40, 700))
        body = b"%s:%d:%d:%d:%s" % (self.key, place, self.attempt, chance.below(10**6), padding)
        self._cluster.judge.on_sent(self.process, (self.key, place), body, self.group)
        return Message(body)

    def _on_effect(self, process: Process, role: Role, effect: Effect) -> None:
        if type(effect) is Confirmed:
            first, bodies = self._tokens.pop(effect.token)
            for i, body in enumerate(bodies):
                number = effect.number_first + i if effect.number_first else 0
                if not self._is_twin:
                    identity = (self.key, first + i)
                    self._cluster.judge.on_confirmed(identity, body, self.group, number)
            self._note("confirmed", first, len(bodies), effect.number_first)
        elif type(effect) is Failed:
            first, bodies = self._tokens.pop(effect.token)
            if effect.kind is AnswerKind.FORGOTTEN:
                for i in range(len(bodies)):
                    self._cluster.judge.facts.given_up[(self.key, first + i)] = None
            self._note("answered", first, len(bodies), 0)
        elif type(effect) is Opened:
            if not self.is_open:
                self.is_open = True
                self.place = effect.counter_next - 1
        elif type(effect) is Stopped:
            self._on_stopped(process, effect)
        self.pump()

    def _on_stopped(self, process: Process, effect: Stopped) -> None:
        self.is_over = True
        if effect.kind is AnswerKind.NO_GROUP:
            self._cluster.judge.names.on_no_group(process.name, self.group)
        if self.is_named and self.is_open and self.sender is not None:
            self._cluster.judge.on_stopped(process, self.sender, effect.kind.name)

    def _note(self, what: str, first: int, count: int, number: int) -> None:
        self._cluster.judge.trace.add(
            self._cluster.world.now_us, self.process.name, what, group=self.group,
            sender=self.key.decode(), counter=first, count=count, number=number,
        )  # fmt: skip


class OwnerApp:
    """Runs transactions over one or several groups, one after the other."""

    def __init__(
        self, cluster: "Cluster", process: Process, groups: tuple[int, ...], name: str = ""
    ) -> None:
        self._cluster = cluster
        self.process = process
        self._groups = groups
        self._name = name or process.name
        self.key = self._name.encode()
        self._bodies: list[bytes] = []
        self.attempt = 0
        self.tx = 0  # handed over
        self.goal = 0
        self.is_open = False
        self.is_over = False
        self._busy = False
        process.on_effect = self._on_effect

    def start(self) -> None:
        """Begin a life under the same name."""
        cluster = self._cluster
        self.attempt = cluster.next_attempt()
        self.is_open = self._busy = False
        role = Owner(
            self.process.node,
            cluster.configuration,
            cluster.settings,
            cluster.world.chance,
            self._name,
            Channel.PAYLOAD if cluster.shape.has_multicast else Channel.DATA,
        )
        self.process.start([role])

    @property
    def owner(self) -> Owner | None:
        """The role, while the process lives."""
        role = self.process.roles[0] if self.process.roles else None
        return role if isinstance(role, Owner) else None

    @property
    def is_idle(self) -> bool:
        """Everything wanted is decided."""
        return self.is_over or (self.is_open and not self._busy and self.tx >= self.goal)

    def want(self, count: int) -> None:
        """Run so many transactions more."""
        self.goal += count
        self.pump()

    def pump(self) -> None:
        """Hand over the next transaction, if there is one to run."""
        if not self.process.is_up or not self.is_open or self._busy or self.tx >= self.goal:
            return
        self._busy = True
        self.tx += 1
        chance = self._cluster.world.chance
        facts, most = self._cluster.judge.facts, self._cluster.shape.stages_max
        parts = facts.transactions.setdefault((self.key, self.tx), chance.between(1, most))
        stages: list[tuple[int, bytes, int]] = []
        self._bodies = []
        for part in range(1, parts + 1):
            group = self._groups[(part + self.tx) % len(self._groups)]
            body = b"%s:%d:%d:%d:%d:%s" % (
                self.key, self.tx, self.attempt, part, chance.below(10**6),
                self._cluster.shape.stage_padding(),
            )  # fmt: skip
            identity: Identity = (b"%s/%d" % (self.key, part), self.tx)
            self._cluster.judge.on_sent(self.process, identity, body, group)
            self._bodies.append(body)
            stages.append((group, columns_from_messages([Message(body)]), 1))
        self.process.post(0, Transacted(self.tx, tuple(stages)))

    def _on_effect(self, process: Process, role: Role, effect: Effect) -> None:
        if type(effect) is OwnerOpened:
            if not self.is_open:
                self.is_open = True
                self.tx = effect.tx_next - 1
        elif type(effect) is Decided:
            self._busy = False
            # The number of each part follows from the spans, group by group.
            at: dict[int, int] = {group: first for group, first, _ in effect.spans}
            for part, body in enumerate(self._bodies, 1):
                group = self._groups[(part + effect.tx) % len(self._groups)]
                number = at.get(group, 0)
                if number:
                    at[group] += 1
                identity = (b"%s/%d" % (self.key, part), effect.tx)
                self._cluster.judge.on_confirmed(identity, body, group, number)
        elif type(effect) is OwnerStopped:
            self.is_over = True
            if self.is_open and isinstance(role, Owner):
                self._cluster.judge.on_stopped(process, role, effect.kind.name)
        self.pump()


class MemberApp:
    """A member whose application keeps its position across crashes."""

    def __init__(
        self, cluster: "Cluster", process: Process, group: int, *, is_leased: bool = False
    ) -> None:
        self._cluster = cluster
        self.process = process
        self.group = group
        self.position = 1
        self._is_leased = is_leased  # what it hasn't seen is kept for it
        self._leased_at = 0
        self._is_after_loss = False
        self._lost = 0  # up to here messages were gone
        process.on_effect = self._on_effect

    def start(self) -> None:
        """Begin a life where the last one stopped."""
        cluster = self._cluster
        member = Member(
            self.process.node, cluster.configuration, cluster.settings, self.group, self.position,
            floor=self._lost,
        )  # fmt: skip
        cluster.judge.on_member(self.process, member)
        if self._is_after_loss:  # It may begin before its place, with a whole batch.
            cluster.judge.order.on_member(self.process.name, 0)
        self.process.start([member])
        self._follow(is_more=False)

    def _begin_again(self, life: int) -> None:
        if self.process.is_up and self.process.life == life:
            self.process.stop()
            self.start()

    def _follow(self, *, is_more: bool) -> None:
        """Have a data server stream to us, for a while; nothing may depend on it."""
        cluster = self._cluster
        if not cluster.shape.has_streams:
            return
        chance = cluster.world.chance
        keepers = [p.node for p in cluster.servers if cluster.roles_of(p.node) & ROLE_DATA]
        runs = chance.pick((1, 5, 40))
        follow = Follow(self.group, self.position, runs, is_more)
        cluster.world.network.send(self.process.node, (chance.pick(keepers),), follow)

    def _on_effect(self, process: Process, role: Role, effect: Any) -> None:
        self._cluster.judge.on_effect(process, effect)
        if type(effect) is Deliver:
            number, batch = effect.runs[-1]
            self.position = number + batch.count
            self._is_after_loss = False
            if self._is_leased and self.position - self._leased_at > LEASE_STEP:
                self._leased_at = self.position
                self._cluster.lease(self.group, self.position - 1)
        elif type(effect) is Lost:
            self._cluster.judge.collection.on_lost(
                process.name, self.group, effect.number, self._is_leased
            )
            self.position = max(self.position, effect.number + 1)
            self._lost = max(self._lost, effect.number)
            self._is_after_loss = True
            self._cluster.world.at(1, self._begin_again, process.life)
            if self._cluster.world.chance.happens(0.1):
                self._follow(is_more=self._cluster.world.chance.happens(0.5))
