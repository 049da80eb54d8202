"""Which faults met which states, over many seeds, and which cells may stay empty and why."""

from samcast.sim.runner import Result

SERVER_STATES = (
    "leading", "recovering", "following", "electing", "installing", "learner", "unknown", "data",
)  # fmt: skip
CLUSTER_STATES = ("leading", "electing", "leaderless")
CLUSTER_FAULTS = (
    "loss", "burst", "duplicate", "reorder", "hold_old", "cut_whole", "cut_pair", "swizzle",
    "flip", "rolling", "power_cut", "torn_everywhere", "swap_quorums", "brownout", "short_name",
    "crowd", "abort", "remove_name", "link_full", "copy", "overtake",
)  # fmt: skip
SERVER_FAULTS = (
    "cut_one_way", "crash", "crash_sequencer", "crash_unacked", "crash_writing", "lost_writes",
    "torn", "strand", "lag_and_rot", "pause", "pause_sequencer", "clock_rate", "clock_jump",
    "sync_error", "disk_full", "disk_slow", "rot_head", "rot_middle", "rot_tail", "rot_vote",
    "rot_data", "wipe", "restore_old",
)  # fmt: skip
CLIENT_FAULTS = (
    "crash_client", "crash_sender", "takeover", "twin", "junk_group", "junk_birth", "junk_sender",
    "junk_gap", "junk_stage",
)  # fmt: skip

NOT_DAMAGED_TWICE = "a disk that is being replaced or repaired is already the damage in the budget"
ONLY_LEADERS = "it is aimed at a process that leads"
EXPLAINED: dict[str, dict[str, str]] = {
    **{
        kind: {"learner": NOT_DAMAGED_TWICE, "unknown": NOT_DAMAGED_TWICE}
        for kind in ("rot_head", "rot_middle", "rot_tail", "rot_vote", "rot_data", "wipe",
                     "restore_old")
    },
    **{
        kind: dict.fromkeys(
            ("following", "electing", "installing", "learner", "unknown", "data"), ONLY_LEADERS
        )
        for kind in ("crash_sequencer", "pause_sequencer")
    },
    **{
        kind: dict.fromkeys(
            ("recovering", "following", "electing", "installing", "learner", "unknown", "data"),
            "it waits for a sequencer whose epoch has begun",
        )
        for kind in ("crash_unacked", "strand", "lag_and_rot")
    },
    "short_name": dict.fromkeys(("electing", "leaderless"), "it waits until somebody leads"),
    "torn_everywhere": dict.fromkeys(
        ("leading", "electing"), "it is counted when all servers are down"
    ),
    **{
        kind: {
            "learner": "a learner writes nothing of the order",
            "unknown": "it writes only when it is being repaired, and then it is installing",
        }
        for kind in ("crash_writing", "torn")
    },
}  # fmt: skip


class Coverage:
    """Sums over seeds."""

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}
        self.states: dict[str, dict[str, int]] = {}
        self.warnings: dict[str, int] = {}
        for kind in (*CLUSTER_FAULTS, *SERVER_FAULTS, *CLIENT_FAULTS):
            self.faults[kind] = 0
            self.states[kind] = {}

    def add(self, result: Result) -> None:
        """One more seed."""
        for kind, count in result.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + count
        for kind, states in result.states.items():
            sums = self.states.setdefault(kind, {})
            for state, count in states.items():
                sums[state] = sums.get(state, 0) + count
        for code, count in result.warnings.items():
            self.warnings[code] = self.warnings.get(code, 0) + count

    def unexplained(self) -> list[str]:
        """Cells that are empty without a reason: the simulator never tried them."""
        empty: list[str] = []
        for kinds, wanted in ((CLUSTER_FAULTS, CLUSTER_STATES), (SERVER_FAULTS, SERVER_STATES)):
            for kind in kinds:
                for state in wanted:
                    is_met = self.states[kind].get(state, 0)
                    if not is_met and state not in EXPLAINED.get(kind, {}):
                        empty.append(f"{kind} while {state}")
        empty += [f"{kind} at all" for kind, count in self.faults.items() if not count]
        return empty
