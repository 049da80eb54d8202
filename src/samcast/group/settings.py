"""The settings of the roles: frozen, checked once, every bound with its default and its reason."""

from dataclasses import dataclass

from samcast.errors import ConfigError
from samcast.limits import DECISION_BYTES, DECISION_STAGE_BYTES, ORDER_PIECE_BYTES_MAX

# Nodes of a version that lacks these agree with us as long as they have their defaults.
LATER = ("cell_senders_max", "order_bytes_max", "snapshot_rows_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times and bounds of the ordering core. Nodes of one cell must agree on the fold's part."""

    # The fold: equal on all nodes, or their states differ.
    sender_runs_max: int = 256  # runs a row keeps, and so the most a sender has unconfirmed
    named_max: int = 10_000  # pinned rows of a group; they are never evicted
    anonymous_max: int = 10_000  # rows of owners whose name nobody uses again; the oldest go
    tombstones_max: int = 10_000  # names of a group that were given up, and when; the oldest go
    cell_lifetime: int = 2**30  # in log indexes, for the names of transaction owners
    decision_stages_max: int = 1024  # one decision is one entry and must fit one journal group
    snapshot_interval: int = 20_000  # entries between core snapshots; a start folds as many
    cell_senders_max: int = 500_000  # unnamed, in all groups: at most twice that, copied in 0.2 s

    # Numbering.
    is_before: bool = False  # GRP-05: own disk first, then the other commit servers
    is_one_step: bool = False  # GRP-10: members ask data servers by number
    is_overheard: bool = False  # submits go to everybody, so commits may be bare claims

    # Bounds.
    entries_per_message_max: int = 1000  # an order message stays near 100 KB
    entries_per_record_max: int = 256  # of the order journal: a record must fit one segment
    order_bytes_max: int = ORDER_PIECE_BYTES_MAX  # of the entries of either, unless it is one alone
    snapshot_rows_max: int = 1000  # of a core snapshot, encoded in one turn: some 5 ms
    pending_runs_max: int = 200_000  # reports the sequencer remembers; it may forget any
    held_runs_max: int = 100_000  # unnumbered runs a data server keeps
    held_runs_reserve: int = 10_000  # on top, for runs that are next in line; as many for fetches
    held_stages_max: int = 100_000  # undecided stages a data server keeps
    staged_bytes_max: int = (
        32 * 1024**3
    )  # of one owner, and of one client: 1000 of 16 MiB fit twice
    client_percent: int = 10  # of these bounds, what one client may take; of stages, one owner, too
    waiting_runs_max: int = 1000  # batches that a data server can't place yet, in memory
    waiting_bytes_max: int = 64 * 1024 * 1024  # of the same, in bytes
    member_runs_max: int = 10_000  # payloads a member keeps before it can deliver them
    member_bytes_max: int = 64 * 1024 * 1024  # of the same, in bytes
    stage_window_bytes: int = 8 * 1024 * 1024  # of stages under way, far below what a link takes
    spans_per_request_max: int = 64
    repairs_per_reply_max: int = 64

    # Times start things; they never decide anything.
    heartbeat_interval_ms: int = 50
    suspect_ms: int = 300  # silence of the sequencer before a pre-vote
    retry_ms: int = 40  # first repeat of what got no answer; doubles
    retry_max_ms: int = 1000
    report_max_ms: int = 120_000  # between reports of what isn't next in line: it may be for ever
    collect_interval_ms: int = 1000  # between two looks at what may go
    abandoned_ms: int = 24 * 3600 * 1000  # a stage so old without a decision: ABORT is proposed
    rejoin_silence_ms: int = 10_000  # of a listed disk, before a new one may take its place
    fetch_after_ms: int = 60  # a run below k_data waits this long before others must fetch it

    def share(self, most: int) -> int:
        """What one client may take of what there is for all."""
        return max(1, most * self.client_percent // 100)

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int) and value < (0 if isinstance(value, bool) else 1):
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        stages_max = (ORDER_PIECE_BYTES_MAX - DECISION_BYTES) // DECISION_STAGE_BYTES
        if self.decision_stages_max > stages_max:
            raise ConfigError(
                f"decision_stages_max is {self.decision_stages_max}; a decision is one entry, and"
                f" one of more than {stages_max} stages may not fit the order's journal"
            )
        if self.order_bytes_max > ORDER_PIECE_BYTES_MAX:
            raise ConfigError(
                f"order_bytes_max is {self.order_bytes_max}; records and messages of the order"
                f" have at most {ORDER_PIECE_BYTES_MAX} bytes"
            )
        if self.share(self.held_stages_max) < self.decision_stages_max:
            raise ConfigError(
                f"decision_stages_max is {self.decision_stages_max}: one owner may stage only"
                f" {self.share(self.held_stages_max)}, which is {self.client_percent} % of"
                " held_stages_max"
            )
        if self.suspect_ms <= 2 * self.heartbeat_interval_ms:
            raise ConfigError(
                f"suspect_ms is {self.suspect_ms}: with a heartbeat every "
                f"{self.heartbeat_interval_ms} ms one lost packet would start an election"
            )
