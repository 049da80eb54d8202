"""Fail-over of the sequencer: suspect, ask around, seal an epoch, adopt the best log (GRP-21).

Time, or a broken connection, only starts an election. A pre-vote keeps a deaf node from forcing
epochs up, and lets a node that lacks much leave it to one that doesn't. The candidate that gets `e`
promises adopts, whole, the log with the greatest (configuration, log epoch, length) among the
intact ones. A promise with an unknown tail counts only beside an intact one of a higher stamp:
whatever rot took from it was then accepted in an epoch that the higher one already contains.

A candidate whose own log ends below the base of the best one steps back: the one that has that
log is alive, since it promised, and will stand itself.
"""

from enum import Enum
from typing import TYPE_CHECKING

from samcast.group.order_log import OrderLog
from samcast.machine.ports import (
    NEVER_MS,
    Chance,
    Effect,
    NodeId,
    Reachable,
    Send,
    Unreachable,
    Warn,
)
from samcast.machine.quorum import lists, servers_with
from samcast.wire.change import Moved
from samcast.wire.group import LogReply, LogRequest, PreVote, PreVoteReply, Promise, Seal
from samcast.wire.order import EPOCH_NONE, ROLE_COMMIT, Epoch

if TYPE_CHECKING:
    from samcast.group.commit_server import CommitServer
    from samcast.group.installing import Stamp


ROUND_MAX = 2**48  # no cell lives long enough to get here; a peer that says so is mistaken


class State(Enum):
    """Where a candidate stands."""

    FOLLOWING = "following"
    ASKING = "asking"  # pre-vote
    SEALING = "sealing"
    FETCHING = "fetching"


TRANSITIONS = {
    State.FOLLOWING: {State.ASKING, State.FOLLOWING},
    State.ASKING: {State.ASKING, State.SEALING, State.FOLLOWING},
    State.SEALING: {State.FETCHING, State.ASKING, State.FOLLOWING},
    State.FETCHING: {State.ASKING, State.FOLLOWING},
}


def speaks_for(sender: NodeId, epoch: Epoch, out: list[Effect]) -> bool:
    """An epoch is spoken for by its own sequencer only, and begins at round 1."""
    if epoch[1] == sender and 1 <= epoch[0] <= ROUND_MAX:
        return True
    out.append(Warn("epoch-of-other", f"{sender} speaks for {epoch}"))
    return False


def stamp_of(said: Promise | PreVote) -> "Stamp":
    """Whose log it is."""
    return (said.log_configuration, said.log_epoch)


def rank_of(promise: Promise) -> "tuple[Stamp, int]":
    """Of two logs the one of the later configuration is adopted: one of an older has decided
    nothing behind the stop-sign, however high its epoch. Of one configuration the one of the later
    epoch, of one epoch the longer one."""
    return (stamp_of(promise), promise.length)


class Election:
    """The candidate's hat of a commit server."""

    def __init__(self, server: "CommitServer", chance: Chance) -> None:
        self._server = server
        self._chance = chance
        self.state = State.FOLLOWING
        self.leader: NodeId | None = None
        self.leader_epoch: Epoch = EPOCH_NONE
        self._round_max = server.promised[0]
        self._heard_ms = -(10**9)  # nobody was ever heard: a pre-vote is granted at once
        self._due_ms = self._jittered(server.settings.suspect_ms)
        self._ahead_until_ms = NEVER_MS  # until then those who lack much are refused, once
        self._epoch: Epoch = EPOCH_NONE
        self._granted: dict[NodeId, None] = {}
        self._asked_round = 0
        self._promises: dict[NodeId, Promise] = {}
        self._best: Promise | None = None
        self._best_node: NodeId = 0
        self._adopting: OrderLog | None = None
        self._fetch_due_ms = NEVER_MS

    def _jittered(self, wait_ms: int) -> int:
        return self._server.now_ms + wait_ms + self._chance.below(wait_ms)

    def _become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state

    def due_ms(self) -> int:
        """When to suspect, or to give a candidacy up."""
        if self._server.sequencer is not None or not self._may_stand():
            return NEVER_MS
        return min(self._due_ms, self._fetch_due_ms)

    def _may_stand(self) -> bool:
        return self._server.may_vote() and not self._server.unknown_from

    # what is heard

    def on_epoch_seen(self, epoch: Epoch) -> None:
        """Somebody knows this epoch; ours must be higher."""
        if epoch[0] <= ROUND_MAX:
            self._round_max = max(self._round_max, epoch[0])

    def on_reconfigured(self) -> None:
        """Votes of another configuration count for nothing in this one."""
        self._granted.clear()
        if self.state is not State.FOLLOWING:
            self._step_back()

    def on_sequencer_heard(self, epoch: Epoch) -> None:
        """A sequencer that we may follow is alive."""
        if epoch < self.leader_epoch:
            return
        self.on_epoch_seen(epoch)
        self.leader, self.leader_epoch = epoch[1], epoch
        self._heard_ms = self._server.now_ms
        self._due_ms = self._jittered(self._server.settings.suspect_ms)
        self._ahead_until_ms = NEVER_MS
        if self.state is not State.FOLLOWING and epoch >= self._epoch:
            self._step_back()

    def stand_at_once(self) -> None:
        """Our own lead ended by a new configuration: somebody must be elected in it."""
        self._heard_ms = -(10**9)
        self._due_ms = self._server.now_ms + self._chance.below(4)

    def on_connection(self, event: Unreachable | Reachable) -> None:
        """The sequencer's end of a connection is gone, and so may it be: ask around at once; those
        who hear it still will refuse. Or somebody is there who couldn't hear our question."""
        is_lost = type(event) is Unreachable
        if is_lost and event.node == self.leader and self.state is State.FOLLOWING:
            self._heard_ms = -(10**9)
        elif is_lost or self.state is not State.ASKING:
            return
        haste_ms = 1 + self._chance.below(max(1, self._server.settings.suspect_ms // 10))
        self._due_ms = min(self._due_ms, self._server.now_ms + haste_ms)

    def _step_back(self) -> None:
        self._become(State.FOLLOWING)
        self._promises.clear()
        self._adopting = None
        self._fetch_due_ms = NEVER_MS

    def on_drained(self, out: list[Effect]) -> None:
        """Start what time says."""
        server = self._server
        if server.sequencer is not None or not self._may_stand():
            return
        if server.now_ms >= self._due_ms:
            self._ask(out)
        elif self.state is State.FETCHING and server.now_ms >= self._fetch_due_ms:
            self._fetch(out)

    # pre-vote

    def _ask(self, out: list[Effect]) -> None:
        if self.state is not State.FOLLOWING:
            self._step_back()
        self._become(State.ASKING)
        self._granted.clear()
        self._due_ms = self._jittered(self._server.settings.suspect_ms)
        self._asked_round = self._round_max + 1
        server = self._server
        length, number = server.log.length, server.configuration.number
        question = PreVote(
            number, self._asked_round, server.log_epoch, length, server.log_configuration
        )
        self._to_all(question, out)

    def _to_all(self, message: PreVote | Seal, out: list[Effect]) -> None:
        for server in servers_with(self._server.configuration, ROLE_COMMIT):
            out.append(Send(server.node, message))

    def on_pre_vote(self, sender: NodeId, vote: PreVote, out: list[Effect]) -> None:
        """Would we promise? Not while we hear a sequencer; and nothing is bound by it."""
        server = self._server
        number = server.configuration.number
        if vote.configuration != number:
            if vote.configuration < number:
                out.append(Send(sender, Moved(server.configuration)))
            return
        is_quiet = server.now_ms - self._heard_ms >= server.settings.suspect_ms
        is_granted = is_quiet and server.sequencer is None and server.may_vote()
        if is_granted and sender != server.node and self._is_far_ahead(vote):
            is_granted = self._has_had_its_chance()
        out.append(Send(sender, PreVoteReply(number, vote.round, is_granted, self._round_max)))

    def _is_far_ahead(self, vote: PreVote) -> bool:
        """Whether whoever asks would first have to fetch much that we have."""
        server = self._server
        if not self._may_stand() or stamp_of(vote) > server.stamp:
            return False
        is_older = stamp_of(vote) < server.stamp
        few = server.settings.entries_per_message_max
        return is_older or server.log.length - vote.length > few

    def _has_had_its_chance(self) -> bool:
        """Stand ourselves instead; but if that leads nowhere for some time, anybody may."""
        server = self._server
        if self._ahead_until_ms == NEVER_MS:
            self._ahead_until_ms = server.now_ms + server.settings.suspect_ms
            if self.state is State.FOLLOWING:
                self._due_ms = server.now_ms
        return server.now_ms >= self._ahead_until_ms

    def on_pre_vote_reply(self, sender: NodeId, reply: PreVoteReply, out: list[Effect]) -> None:
        """With enough of them an election is worth its disturbance."""
        server = self._server
        if not any(s.node == sender for s in server.configuration.servers):
            out.append(Warn("vote-of-stranger", f"{sender} is not listed"))
            return
        if reply.round_max <= ROUND_MAX:
            self._round_max = max(self._round_max, reply.round_max)
        if self.state is not State.ASKING or reply.configuration != server.configuration.number:
            return
        if not reply.is_granted or reply.round != self._asked_round:
            return
        self._granted[sender] = None
        if len(self._granted) >= self.quorum():
            self._seal(out)

    def quorum(self) -> int:
        """How many must promise: enough to meet every commit quorum."""
        return self._server.configuration.e_commit

    # seal and promises

    def next_epoch(self) -> Epoch:
        """Above everything seen, and never the same twice: a restart draws another nonce."""
        return (self._round_max + 1, self._server.node, 1 + self._chance.below(2**62))

    def _seal(self, out: list[Effect]) -> None:
        self._become(State.SEALING)
        self._epoch = self.next_epoch()
        self._round_max = self._epoch[0]
        self._promises.clear()
        self._to_all(Seal(self._server.configuration.number, self._epoch), out)

    def on_promise(self, sender: NodeId, promise: Promise, out: list[Effect]) -> None:
        """Count it if it is for us, of our configuration, and of a disk that is listed."""
        server = self._server
        if self.state is not State.SEALING or promise.epoch != self._epoch:
            return
        configuration = server.configuration
        if promise.configuration != configuration.number:
            return
        if not lists(configuration, sender, promise.uuid, ROLE_COMMIT):
            out.append(Warn("promise-of-other-disk", f"{sender} with uuid {promise.uuid}"))
            return
        self._promises[sender] = promise
        best = self.choose(self._promises, self.quorum())
        if best is not None:
            self._best_node, self._best = best, self._promises[best]
            self._adopt(out)

    @staticmethod
    def choose(promises: dict[NodeId, Promise], quorum: int) -> NodeId | None:
        """Whose log to adopt, or None while too few promises count."""
        intact = [n for n, p in promises.items() if not p.unknown_from]
        if not intact:
            return None
        best = max(intact, key=lambda n: rank_of(promises[n]))
        stamp = stamp_of(promises[best])
        unknown = [p for p in promises.values() if p.unknown_from and stamp_of(p) < stamp]
        return best if len(intact) + len(unknown) >= quorum else None

    # adopting

    def _adopt(self, out: list[Effect]) -> None:
        best = self._best
        assert best is not None
        common = self._server.log.agrees_up_to(best.hashes)
        if common is None or common < best.low_water:
            self._due_ms = self._jittered(3 * self._server.settings.suspect_ms)
            self._step_back()
            return
        self._become(State.FETCHING)
        self._adopting = self._server.log.copy()
        self._adopting.cut(common)
        self._fetch(out)

    def _fetch(self, out: list[Effect]) -> None:
        best, log = self._best, self._adopting
        assert best is not None
        assert log is not None
        if log.length < best.length:
            self._fetch_due_ms = self._server.now_ms + self._server.settings.retry_ms
            out.append(Send(self._best_node, LogRequest(self._epoch, log.length + 1)))
            return
        self._fetch_due_ms = NEVER_MS
        if log.last_hash != best.hashes[0][1]:
            out.append(Warn("log-differs-from-promise", f"of {self._best_node}"))
            self._step_back()
            return
        promises = dict(self._promises)
        self._step_back()
        self._lead(log, promises, out)

    def on_log_reply(self, sender: NodeId, reply: LogReply, out: list[Effect]) -> None:
        """The next piece of the best log."""
        log, best = self._adopting, self._best
        if self.state is not State.FETCHING or reply.epoch != self._epoch:
            return
        if log is None or best is None or sender != self._best_node:
            return
        if reply.index_first != log.length + 1 or not reply.entries:
            return
        log.extend(reply.entries[: best.length - log.length])
        self._fetch(out)

    def _lead(self, log: OrderLog, promises: dict[NodeId, Promise], out: list[Effect]) -> None:
        server = self._server
        if server.promised > self._epoch:
            return  # Somebody else's epoch came in between.
        if log.hash_at(server.core.index) != server.core.hash:
            out.append(Warn("adopted-log-undoes-committed", f"epoch {self._epoch}"))
            return
        self.leader, self.leader_epoch = server.node, self._epoch
        server.lead(self._epoch, log, promises, out)
