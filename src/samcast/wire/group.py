"""The control messages of the group: who says what to whom (payloads travel as `wire.batch`).

Every message is frozen, positional, and tagged with an integer that is never used again. Messages
that count towards a quorum name the disk (`uuid`) and the configuration they speak for.
"""

from enum import IntEnum

import msgspec

from samcast.wire.blocked import Blocked
from samcast.wire.change import ChangeRequest, Join, Moved
from samcast.wire.control import Control
from samcast.wire.handing import HandedIn, HandIn, States, StatesRequest
from samcast.wire.names import Names, NamesRequest
from samcast.wire.order import (
    AnyEntry,
    Configuration,
    Digest,
    Epoch,
    GroupName,
    Hash,
    Label,
    Natural,
    Positive,
    Record,
    SenderId,
    StageRef,
)
from samcast.wire.retention import (
    BeginRequest,
    BlockReply,
    BlockRequest,
    CheckpointReport,
    Checkpoints,
    CheckpointsRequest,
    Collected,
    Holdings,
    KeepRequest,
    LeaseRequest,
)
from samcast.wire.rows import Rows, RowsRequest, Skipped
from samcast.wire.stages import StageKey, Stages, StagesRequest
from samcast.wire.stretch import Stretch

RunKey = tuple[Natural, SenderId, Natural, Natural]  # group, sender, incarnation, counter_first
Span = tuple[Natural, Natural, Natural]  # group, number_first, count
HashAt = tuple[Natural, Hash]  # index, chain hash there


class AnswerKind(IntEnum):
    """What a sender may hear of a run. All of them are final."""

    NUMBER = 1  # committed, this is its number
    CONFIRMED = 2  # committed, the number is no longer kept
    EXPIRED = 3  # never was and never will be numbered
    REOPEN = 4  # the same; the sender's place was forgotten, not its message
    FORGOTTEN = 5  # nobody can know any more; never resent by the library
    FENCED = 6  # another process has taken over the name
    REMOVED = 7  # the name was given up; outcome unknown
    CONFLICT = 8  # the id is taken by other content
    NO_GROUP = 9  # the group was removed


class OutcomeKind(IntEnum):
    """What a proposer may hear. All of them are final."""

    OPENED = 1
    FENCED = 2  # value: the incarnation in force
    REMOVED = 3
    DECIDED = 4
    CONFIRMED = 5  # decided long ago, the numbers are no longer kept
    ABORTED = 6  # the incarnation is over; open again, stage again
    GROUP = 7  # value: its id
    DONE = 8
    REFUSED = 9  # a limit was reached (value: which), or the request makes no sense here
    EXPIRED = 10  # a decision that never took effect and never will; its owner's row is gone


class Reported(Record, frozen=True, gc=False, array_like=True):
    """A run, or a stage (`stage` > 0), that is on the reporter's disk."""

    group: Natural
    sender: SenderId
    incarnation: Natural
    counter_first: Natural
    count: Natural
    birth: Natural
    confirmed_below: Natural
    digest: Digest
    stage: Natural


class DataReport(Control, frozen=True, gc=False, array_like=True, tag=1):
    """Data server -> sequencer: these are on my disk; all up to index `applied` is marked."""

    configuration: Natural
    epoch: Epoch
    uuid: Natural
    applied: Natural
    runs: tuple[Reported, ...]


class FetchPlease(Control, frozen=True, gc=False, array_like=True, tag=2):
    """Sequencer -> data server: too few have these; get them from `holders`."""

    epoch: Epoch
    runs: tuple[RunKey, ...]
    stages: tuple[StageKey, ...]
    holders: tuple[Natural, ...]


class PayloadRequest(Control, frozen=True, gc=False, array_like=True, tag=3):
    """Member or data server -> data server: send me these, by id or by number."""

    runs: tuple[RunKey, ...] = ()
    stages: tuple[StageKey, ...] = ()
    spans: tuple[Span, ...] = ()


class Repair(Control, frozen=True, gc=False, array_like=True, tag=4):
    """Data server -> whoever asked: batches as stored, with their numbers (0: not numbered)."""

    batches: tuple[tuple[Natural, bytes], ...]


class CommitSubmit(Control, frozen=True, gc=False, array_like=True, tag=5):
    """Sequencer -> commit servers: store these entries. Carries a commit claim as well."""

    configuration: Natural
    epoch: Epoch
    index_first: Natural
    entries: tuple[AnyEntry, ...]
    committed: Natural
    committed_hash: Hash


class CommitAck(Control, frozen=True, gc=False, array_like=True, tag=6):
    """Commit server -> sequencer: I hold everything of your epoch up to `index`."""

    configuration: Natural
    epoch: Epoch
    uuid: Natural
    index: Natural
    is_behind: bool  # a hole was seen: send from index + 1 again
    snapshot: Natural  # index of the newest core snapshot on my disk
    snapshot_hash: Hash


class Commit(Control, frozen=True, gc=False, array_like=True, tag=7):
    """Sequencer -> everybody: these entries are committed; a claim about all up to `committed`."""

    configuration: Natural
    epoch: Epoch
    index_first: Natural
    entries: tuple[AnyEntry, ...]
    committed: Natural
    committed_hash: Hash


class Heartbeat(Control, frozen=True, gc=False, array_like=True, tag=8):
    """Sequencer -> everybody: I lead; all up to `committed` is committed; heads of busy groups."""

    configuration: Natural
    epoch: Epoch
    committed: Natural
    committed_hash: Hash
    heads: tuple[tuple[Natural, Natural], ...]


class OrderRequest(Control, frozen=True, gc=False, array_like=True, tag=9):
    """Follower -> commit server: the committed entries from `index_first` on."""

    index_first: Natural


class OrderReply(Control, frozen=True, gc=False, array_like=True, tag=10):
    """Commit server -> follower: committed entries; those up to `low_water` are gone."""

    configuration: Natural
    epoch: Epoch
    index_first: Natural
    entries: tuple[AnyEntry, ...]
    committed: Natural
    committed_hash: Hash
    low_water: Natural


class NumberRequest(Control, frozen=True, gc=False, array_like=True, tag=11):
    """Member -> commit server: which ids have these numbers?"""

    spans: tuple[Span, ...]


class NumberReply(Control, frozen=True, gc=False, array_like=True, tag=12):
    """Commit server -> member: committed entries of the spans; `gone` spans are asked by number."""

    entries: tuple[AnyEntry, ...]
    gone: tuple[Span, ...]


class HeadRequest(Control, frozen=True, gc=False, array_like=True, tag=13):
    """Anyone -> any server: how far is this group?"""

    group: Natural


class Head(Control, frozen=True, gc=False, array_like=True, tag=14):
    """Server -> anyone: committed number of the group (scope CELL: the log's index)."""

    group: Natural
    number: Natural


class Asked(Record, frozen=True, gc=False, array_like=True):
    """What a sender's retransmission asks about, apart from its payload."""

    group: Natural
    sender: SenderId
    incarnation: Natural
    counter_first: Natural
    count: Natural
    birth: Natural
    confirmed_below: Natural
    seen: Natural
    digest: Digest


class Answer(Record, frozen=True, gc=False, array_like=True):
    """What is known for certain of one run, from committed state."""

    kind: AnswerKind
    group: Natural
    sender: SenderId
    incarnation: Natural
    counter_first: Natural
    count: Natural
    number_first: Natural
    digest: Digest


class Answers(Control, frozen=True, gc=False, array_like=True, tag=15):
    """Server -> sender: what became of your runs, and how far the group is."""

    answers: tuple[Answer, ...]
    group: Natural
    head: Natural


class OpenRequest(Record, frozen=True, gc=False, array_like=True, tag=1):
    """Take over a name."""

    scope: Natural
    sender: SenderId
    incarnation: Natural
    after: Natural
    birth: Natural
    nonce: Natural
    label: Label = ""
    is_anonymous: bool = False


class DecisionRequest(Record, frozen=True, gc=False, array_like=True, tag=2):
    """Make a transaction effective; number_first of its parts is 0."""

    owner: SenderId
    incarnation: Natural
    tx: Natural
    parts: tuple[tuple[Natural, tuple[StageRef, ...]], ...]
    seen: Natural = 0  # highest index known at the first proposal, its row was there; 0: not told


class AbortRequest(Record, frozen=True, gc=False, array_like=True, tag=3):
    """Give a transaction up; anyone may ask."""

    owner: SenderId
    incarnation: Natural
    tx: Natural


class GroupRequest(Record, frozen=True, gc=False, array_like=True, tag=4):
    """Make a group, or find it if it is there."""

    name: GroupName
    lifetime: Positive
    senders_max: Positive


class GroupRemovalRequest(Record, frozen=True, gc=False, array_like=True, tag=5):
    """Remove a group."""

    group: Natural


class SenderRemovalRequest(Record, frozen=True, gc=False, array_like=True, tag=6):
    """Give up a name."""

    scope: Natural
    sender: SenderId
    below: Natural = 0  # the highest incarnation that is meant; 0: whichever has it


AnyRequest = (
    OpenRequest | DecisionRequest | AbortRequest | GroupRequest | GroupRemovalRequest
    | SenderRemovalRequest | KeepRequest | LeaseRequest | BeginRequest | ChangeRequest
)  # fmt: skip


class Propose(Control, frozen=True, gc=False, array_like=True, tag=16):
    """Client -> commit server -> sequencer: order this. `origin` is who waits for the answer."""

    nonce: Natural
    request: AnyRequest
    origin: Natural = 0


class Outcome(Control, frozen=True, gc=False, array_like=True, tag=17):
    """Commit server -> client: what became of a proposal, from committed state."""

    nonce: Natural
    kind: OutcomeKind
    value: Natural = 0  # OPENED: next counter; GROUP: its id; FENCED: by which incarnation
    runs: tuple[tuple[Natural, Natural, Natural, Digest], ...] = ()  # OPENED: last runs kept
    spans: tuple[Span, ...] = ()  # DECIDED: the numbers
    head: Natural = 0  # of the scope, in the state that says so; of a lease: as many as may be
    next: Natural = 0  # FENCED, of an OPEN: the next counter; OPENED in the cell: its last use


class PreVote(Control, frozen=True, gc=False, array_like=True, tag=18):
    """Candidate -> commit servers: would you promise an epoch of this round, to me with this log?
    Binds nobody."""

    configuration: Natural
    round: Natural
    log_epoch: Epoch
    length: Natural
    log_configuration: Natural = 0  # as in `Promise`


class PreVoteReply(Control, frozen=True, gc=False, array_like=True, tag=19):
    """Commit server -> candidate: yes unless I hear a sequencer, or stand myself with a better log;
    the highest round I know."""

    configuration: Natural
    round: Natural
    is_granted: bool
    round_max: Natural


class Seal(Control, frozen=True, gc=False, array_like=True, tag=20):
    """Candidate -> commit servers: promise this epoch and refuse all lower ones."""

    configuration: Natural
    epoch: Epoch


class Promise(Control, frozen=True, gc=False, array_like=True, tag=21):
    """Commit server -> candidate: promised, durably; this is the log I have."""

    configuration: Natural
    epoch: Epoch
    uuid: Natural
    log_epoch: Epoch
    length: Natural
    low_water: Natural
    unknown_from: Natural  # 0: intact
    hashes: tuple[HashAt, ...]
    log_configuration: Natural = 0  # in which the log epoch was elected: that counts before it


class Refusal(Control, frozen=True, gc=False, array_like=True, tag=22):
    """Commit server -> candidate or sequencer: a higher epoch or configuration is known here."""

    epoch: Epoch
    promised: Epoch
    configuration: Configuration


class LogRequest(Control, frozen=True, gc=False, array_like=True, tag=23):
    """Candidate -> the promiser with the best log: entries from `index_first` on."""

    epoch: Epoch
    index_first: Natural


class LogReply(Control, frozen=True, gc=False, array_like=True, tag=24):
    """Promiser -> candidate: part of my log; served only while I promise your epoch."""

    epoch: Epoch
    index_first: Natural
    entries: tuple[AnyEntry, ...]
    low_water: Natural


class Start(Control, frozen=True, gc=False, array_like=True, tag=25):
    """New sequencer -> commit server: your log up to `base` is mine; replace the rest by this."""

    configuration: Configuration
    epoch: Epoch
    base: Natural
    base_hash: Hash
    index_first: Natural
    entries: tuple[AnyEntry, ...]
    length: Natural  # of the whole log that is installed


class StartReply(Control, frozen=True, gc=False, array_like=True, tag=26):
    """Commit server -> sequencer: I hold the chunk up to `length`, or here is where we agree."""

    configuration: Natural
    epoch: Epoch
    uuid: Natural
    is_started: bool
    received: Natural  # chunks gathered up to here; 0: none, see `hashes`
    length: Natural
    hashes: tuple[HashAt, ...]


class SnapshotRequest(Control, frozen=True, gc=False, array_like=True, tag=27):
    """Anyone -> commit server: a piece of the newest core snapshot."""

    index: Natural  # 0: whichever is newest
    offset: Natural


class SnapshotReply(Control, frozen=True, gc=False, array_like=True, tag=28):
    """Commit server -> anyone: a piece of the core snapshot at `index`."""

    index: Natural
    offset: Natural
    total: Natural
    data: bytes


class Follow(Control, frozen=True, gc=False, array_like=True, tag=31):
    """Member -> one data server: send what is committed from here on, as it comes, so many runs;
    `is_more` adds to what was asked for before instead of starting over; no runs end it."""

    group: Natural
    number_first: Natural
    runs: Natural
    is_more: bool = False


AnyControl = (
    DataReport
    | FetchPlease
    | PayloadRequest
    | Repair
    | CommitSubmit
    | CommitAck
    | Commit
    | Heartbeat
    | OrderRequest
    | OrderReply
    | NumberRequest
    | NumberReply
    | HeadRequest
    | Head
    | Answers
    | Propose
    | Outcome
    | PreVote
    | PreVoteReply
    | Seal
    | Promise
    | Refusal
    | LogRequest
    | LogReply
    | Start
    | StartReply
    | SnapshotRequest
    | SnapshotReply
    | Join
    | Moved
    | Follow
    | Holdings
    | Collected
    | CheckpointReport
    | CheckpointsRequest
    | Checkpoints
    | BlockRequest
    | BlockReply
    | StagesRequest
    | Stages
    | RowsRequest
    | Rows
    | Skipped
    | HandIn
    | HandedIn
    | StatesRequest
    | States
    | Stretch
    | Blocked
    | NamesRequest
    | Names
)

encode_control = msgspec.msgpack.Encoder().encode
decode_control = msgspec.msgpack.Decoder(AnyControl).decode
