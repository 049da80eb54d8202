"""The narrator of a story: turns what roles take in and give out into short sentences.

It watches every role from outside, as a checker does; it knows of messages only what passes by.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from samcast.group.commit_server import CommitServer
from samcast.group.entry import Entry
from samcast.group.member import Deliver
from samcast.group.owner import Decided
from samcast.group.sender import Confirmed, Failed, Opened, Sender
from samcast.group.storage import BatchKey, DropBatch, SendStored, StoreBatch, StoreOrder
from samcast.machine.ports import Effect, Event, Multicast, Received, Role, Send, Stored, Warn
from samcast.sim.world import World
from samcast.wire.batch import Batch, messages_of
from samcast.wire.change import Join
from samcast.wire.group import (
    AnswerKind,
    Answers,
    Commit,
    CommitAck,
    CommitSubmit,
    DataReport,
    FetchPlease,
    Heartbeat,
    NumberReply,
    NumberRequest,
    OpenRequest,
    PayloadRequest,
    Propose,
    Refusal,
    Span,
    StartReply,
)
from samcast.wire.order import AnyEntry, ConfigEntry, DecisionEntry, OpenEntry, RunEntry
from samcast.wire.records import EntriesRecord, decode_record

KINDS = {
    "sends": "a sender multicasts, or an entry passes on",
    "births": "sentences of `sends` also tell the logical time of the first sending",
    "stores": "a data server has a message on its disk",
    "reports": "a data server tells the sequencer what it has stored",
    "assigns": "the sequencer gives a number",
    "writes": "a commit server has a number on its disk",
    "submits": "the sequencer sends numbers to commit servers",
    "acks": "a commit server acknowledges numbers that it had not acknowledged before",
    "commits": "the sequencer tells everybody that numbers are committed",
    "delivers": "a member hands messages to its application, one line per step",
    "asks": "somebody asks for ids or messages that it lacks",
    "answers": "somebody is given them",
    "fetches": "the sequencer has data servers copy from each other",
    "beats": "a heartbeat that says something new",
    "hears": "a sender learns what became of its messages",
    "elects": "a commit server begins or ends to lead",
    "installs": "a commit server takes over the order of a new sequencer",
    "refuses": "a commit server turns away a sequencer of the past (once each)",
    "joins": "a server with a new disk wants to be listed (once)",
    "deletes": "a data server deletes what can never get a number",
    "warns": "a role complains of somebody's mistake",
}

ENDLESS = {"beats", "submits"}  # go on for ever: to the dead, too


class App(Protocol):
    """The application above a role."""

    def see(self, effects: Sequence[Effect]) -> None:
        """What the role has just done."""
        ...


class Watched:
    """A role on stage: everything passes through, and the narrator sees it."""

    def __init__(self, name: str, role: Role, narrator: "Narrator", app: "App | None") -> None:
        self.name = name
        self.role = role
        self.acked = role.log.length if isinstance(role, CommitServer) else 0
        self.assigned = 0
        self.is_leading = False
        self.storing: list[tuple[int, str, str]] = []  # token, kind of sentence, what is stored
        self._narrator = narrator
        self._app = app
        self._handlers = role._handlers  # type: ignore[attr-defined]

    def step(self, events: Sequence[Event]) -> list[Effect]:
        effects = self.role.step(events)
        self._narrator.watch(self, events, effects)
        if self._app is not None:
            self._app.see(effects)
        return effects

    def due_ms(self) -> int:
        return self.role.due_ms()


class Narrator:
    """Turns what roles take in and give out into sentences."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.shown: set[str] = set()
        self.lines: list[str] = []
        self.groups: dict[int, str] = {}
        self.submitted: dict[tuple[str, int], list[str]] = {}  # by sender and token
        self.active_us = 0  # when something worth a sentence happened last
        self._labels: dict[bytes, str] = {}  # by digest
        self._keys: dict[BatchKey, str] = {}
        self._owners: dict[bytes, str] = {}  # names by sender id
        self._firsts: dict[tuple[str, bytes], tuple[bytes, bytes]] = {}  # sender id, digest
        self._told: set[object] = set()  # of what is worth a sentence only once
        self._effects: dict[type, Callable[[Watched, Any], None]] = {
            StoreBatch: lambda who, e: self._storing(who, e, "stores", self._keys[e.key]),
            StoreOrder: self._on_store_order,
            SendStored: self._on_send_stored,
            DropBatch: lambda who, e: self.tell("deletes", who, f"deletes {self._keys[e.key]}"),
            Deliver: self._on_deliver,
            Confirmed: self._on_confirmed,
            Failed: self._on_failed,
            Opened: self._on_opened,
            Decided: self._on_decided,
            Warn: lambda who, e: self.tell("warns", who, f"warns: {e.code}"),
        }
        self._said: dict[type, Callable[[Watched, str, Any], None]] = {
            Batch: self._on_batch,
            DataReport: self._on_report,
            CommitSubmit: self._on_submit,
            CommitAck: lambda who, to, ack: self._on_ack(who, ack.index),
            StartReply: self._on_start_reply,
            Commit: lambda who, to, m: self._tell_of(m.entries, "commits", who, "commits"),
            Heartbeat: self._on_heartbeat,
            NumberRequest: self._on_number_request,
            NumberReply: self._on_number_reply,
            PayloadRequest: self._on_payload_request,
            FetchPlease: self._on_fetch_please,
            Refusal: self._on_refusal,
            Join: self._on_join,
            Propose: self._on_propose,
        }

    def tell(self, kind: str, who: Watched, text: str) -> None:
        if kind not in ENDLESS:
            self.active_us = self._world.now_us
        if kind in self.shown:
            self.lines.append(f"{who.name} {text}")

    def _once(self, key: object, kind: str, who: Watched, text: str) -> None:
        if (kind, key) not in self._told:
            self._told.add((kind, key))
            self.tell(kind, who, text)

    def watch(self, who: Watched, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        for event in events:
            if type(event) is Stored:
                self._on_stored(who, event.token)
            elif type(event) is Received and type(event.message) is Answers:
                self._on_answers(who, event.message)
        if isinstance(who.role, CommitServer):
            self._watch_lead(who, who.role)
        for effect in effects:
            if type(effect) is Send or type(effect) is Multicast:
                say = self._said.get(type(effect.message))
                if say is not None:
                    to = self._name(effect.to) if type(effect) is Send else ""
                    say(who, to, effect.message)
            elif (see := self._effects.get(type(effect))) is not None:
                see(who, effect)

    def _watch_lead(self, who: Watched, role: CommitServer) -> None:
        sequencer = role.sequencer
        if sequencer is not None and not who.is_leading:
            heads = [self._number((g, sequencer.tail.head(g), 1)) for g in self.groups]
            who.assigned = sequencer.epoch_index
            self.tell("elects", who, f"is elected with numbers up to {' '.join(heads)}")
        elif sequencer is None and who.is_leading:
            self.tell("elects", who, "leads no more")
        who.is_leading = sequencer is not None

    # words

    def _name(self, node: int) -> str:
        return self._world.processes[node].name

    def _number(self, span: Span) -> str:
        group, first, count = span
        text = str(first) if count == 1 else f"{first}-{first + count - 1}"
        return text if len(self.groups) == 1 else f"{self.groups[group]}/{text}"

    def _spans_of(self, entry: AnyEntry) -> list[tuple[Span, list[bytes]]]:
        """The numbers that an entry gives, with the digests of what gets them."""
        if type(entry) is RunEntry:
            return [((entry.group, entry.number_first, entry.count), [entry.digest])]
        if type(entry) is DecisionEntry:
            return [
                (
                    (part.group, part.number_first, sum(s.count for s in part.stages)),
                    [s.digest for s in part.stages],
                )
                for part in entry.parts
            ]
        return []

    def _entry(self, entry: AnyEntry) -> str:
        """An entry by its numbers, or by what else it puts in the order."""
        if type(entry) is OpenEntry:
            return f"the name {self._owners[entry.sender]}"
        if type(entry) is ConfigEntry:
            return f"configuration {entry.configuration.number}"
        return " ".join(self._number(span) for span, _ in self._spans_of(entry))

    def _pairs(self, entry: AnyEntry, link: str) -> str:
        return ", ".join(
            f"{self._number(span)}{link}{' '.join(self._labels[d] for d in digests)}"
            for span, digests in self._spans_of(entry)
        )

    def _tell_of(
        self, entries: Iterable[AnyEntry], kind: str, who: Watched, verb: str, to: str = ""
    ) -> None:
        words = [text for entry in entries if (text := self._entry(entry))]
        if words:
            self.tell(kind, who, f"{verb} {' '.join(words)}{to}")

    # sentences about sending, storing and numbering

    def _on_batch(self, who: Watched, to: str, batch: Batch) -> None:
        born = f", born at {batch.birth}" if "births" in self.shown else ""
        if isinstance(who.role, Entry):
            self.tell("sends", who, f"passes {self._labels[batch.digest]} on{born}")
            return
        again = self._again(who, batch)
        label = self._learn(batch)
        what = f"stages {label} for {self.groups[batch.group]}" if batch.stage else f"sends {label}"
        self.tell("sends", who, f"{what}{f' to {to}' if to else ''}{again}{born}")

    def _learn(self, batch: Batch) -> str:
        """Which messages an id stands for."""
        label = " ".join(message.body.decode() for message in messages_of(batch))
        key = (batch.group, batch.sender, batch.incarnation, batch.counter_first, batch.stage)
        self._labels[batch.digest] = self._keys[key] = label
        return label

    def _again(self, who: Watched, batch: Batch) -> str:
        """How this sending differs from the first one of the same messages."""
        if batch.digest in self._labels:
            return " again"
        first = self._firsts.setdefault((who.name, batch.columns), (batch.sender, batch.digest))
        if first[0] != batch.sender:
            return " under a new id"
        return " anew" if first[1] != batch.digest else ""

    def _storing(self, who: Watched, store: StoreBatch | StoreOrder, kind: str, what: str) -> None:
        who.storing.append((store.token, kind, what))

    def _on_store_order(self, who: Watched, store: StoreOrder) -> None:
        for record in map(decode_record, store.records):
            if type(record) is EntriesRecord:
                for entry in record.entries:
                    self._storing(who, store, "writes", self._entry(entry))

    def _on_stored(self, who: Watched, token: int) -> None:
        done = [(kind, what) for t, kind, what in who.storing if t <= token and what]
        who.storing = [item for item in who.storing if item[0] > token]
        for kind in dict.fromkeys(kind for kind, _ in done):
            what = " ".join(w for k, w in done if k == kind)
            self.tell(kind, who, f"has {what} on its disk")

    def _on_report(self, who: Watched, to: str, report: DataReport) -> None:
        if report.runs:
            what = " ".join(self._labels[run.digest] for run in report.runs)
            self.tell("reports", who, f"reports {what}")

    def _on_submit(self, who: Watched, to: str, submit: CommitSubmit) -> None:
        for index, entry in enumerate(submit.entries, submit.index_first):
            if index > who.assigned:
                who.assigned = index
                pairs = self._pairs(entry, " to ")
                self.tell("assigns", who, f"assigns {pairs}" if pairs else self._ordered(entry))
        to = "" if not to else f" to {'itself' if to == who.name else to}"
        self._tell_of(submit.entries, "submits", who, "submits", to)

    def _ordered(self, entry: AnyEntry) -> str:
        return f"puts {self._entry(entry)} in the order"

    def _on_ack(self, who: Watched, index: int) -> None:
        assert isinstance(who.role, CommitServer)
        log = who.role.log
        entries = [log.entry(i) for i in range(max(who.acked, log.base) + 1, index + 1)]
        who.acked = max(who.acked, index)
        self._tell_of(entries, "acks", who, "acknowledges")

    def _on_start_reply(self, who: Watched, to: str, reply: StartReply) -> None:
        if reply.is_started:
            who.acked = reply.length
            text = "takes over the order of " + ("itself" if to == who.name else to)
            self._once((who.name, reply.epoch), "installs", who, text)

    def _on_heartbeat(self, who: Watched, to: str, beat: Heartbeat) -> None:
        heads = " ".join(self._number((group, head, 1)) for group, head in beat.heads)
        self._once((who.name, beat.heads), "beats", who, f"beats: the highest number is {heads}")

    # sentences about delivering and repairing

    def _on_deliver(self, who: Watched, deliver: Deliver) -> None:
        what = ", ".join(
            f"{self._number((deliver.group, number, 1))} {message.body.decode()}"
            for first, batch in deliver.runs
            for number, message in enumerate(messages_of(batch), first)
        )
        self.tell("delivers", who, f"delivers {what}")

    def _on_number_request(self, who: Watched, to: str, request: NumberRequest) -> None:
        spans = " ".join(map(self._number, request.spans))
        self.tell("asks", who, f"asks {to} which ids have {spans}")

    def _on_number_reply(self, who: Watched, to: str, reply: NumberReply) -> None:
        pairs = [self._pairs(entry, " is ") for entry in reply.entries]
        pairs += [f"{self._number(span)} is too old" for span in reply.gone]
        self.tell("answers", who, f"answers {to}: {', '.join(pairs)}")

    def _on_payload_request(self, who: Watched, to: str, request: PayloadRequest) -> None:
        what = [self._keys[(*run, 0)] for run in request.runs]
        what += [self._keys[stage] for stage in request.stages]
        what += [f"number {self._number(span)}" for span in request.spans]
        self.tell("asks", who, f"asks {to} for {' '.join(what)}")

    def _on_send_stored(self, who: Watched, effect: SendStored) -> None:
        what = " ".join(self._keys[key] for _, key in effect.batches)
        self.tell("answers", who, f"gives {self._name(effect.to)} {what}")

    def _on_fetch_please(self, who: Watched, to: str, please: FetchPlease) -> None:
        what = [self._keys[(*run, 0)] for run in please.runs]
        what += [self._keys[stage] for stage in please.stages]
        holders = " ".join(map(self._name, please.holders))
        self.tell("fetches", who, f"has {' '.join(what)} fetched from {holders}")

    def _on_refusal(self, who: Watched, to: str, refusal: Refusal) -> None:
        self._once((who.name, to, refusal.epoch), "refuses", who, f"refuses {to}")

    def _on_join(self, who: Watched, to: str, join: Join) -> None:
        name = self._name(join.node)
        self._once((name, join.uuid), "joins", who, "asks to be listed with a new disk")

    # sentences about what senders learn

    def _on_propose(self, who: Watched, to: str, propose: Propose) -> None:
        if type(propose.request) is OpenRequest:
            self._owners.setdefault(propose.request.sender, who.name)

    def _on_confirmed(self, who: Watched, confirmed: Confirmed) -> None:
        labels = self.submitted[(who.name, confirmed.token)]
        assert isinstance(who.role, Sender)
        span = (who.role.group, confirmed.number_first, len(labels))
        what = self._number(span) if confirmed.number_first else "committed"
        self.tell("hears", who, f"hears that {' '.join(labels)} is {what}")

    def _on_failed(self, who: Watched, failed: Failed) -> None:
        what = " ".join(self.submitted[(who.name, failed.token)])
        self.tell("hears", who, f"hears that {what} is {failed.kind.name.lower()}")

    def _on_answers(self, who: Watched, answers: Answers) -> None:
        for answer in answers.answers:
            if answer.kind == AnswerKind.EXPIRED and isinstance(who.role, Sender):
                text = f"hears that {self._labels[answer.digest]} can't get a number any more"
                self._once(answer, "hears", who, text)

    def _on_opened(self, who: Watched, opened: Opened) -> None:
        known = [f"{self._labels[d]} is {number}" for _, _, number, d in opened.runs]
        what = ", ".join(known) or "nothing was numbered yet"
        self.tell("hears", who, f"holds its name and hears: {what}")

    def _on_decided(self, who: Watched, decided: Decided) -> None:
        spans = " ".join(map(self._number, decided.spans))
        self.tell("hears", who, f"hears that it is decided, as {spans}")
