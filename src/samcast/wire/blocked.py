"""Why a data server has not taken a batch. It is no outcome: the batch may be taken later, or by
others, and whoever sent it repeats it.
"""

from enum import IntEnum

from samcast.wire.control import Control
from samcast.wire.order import Natural
from samcast.wire.stages import StageKey


class Reason(IntEnum):
    """What stands in a batch's way."""

    UNKNOWN_GROUP = 1  # no such group in the order, as far as it is known here
    BORN_AHEAD = 2  # it knows of a number that isn't there, as far as it is known here
    UNKNOWN_NAME = 3  # its sender's or owner's name isn't open, as far as it is known here
    SENDER_RUNS = 4  # so many of this sender wait for a number
    CLIENT_RUNS = 5  # so many that this client brought do
    ALL_RUNS = 6  # so many of everybody do
    CLIENT_STAGES = 7  # so many stages that this client brought wait for a decision
    CLIENT_BYTES = 8  # bytes of the same
    OWNER_STAGES = 9  # so many stages of this owner do
    OWNER_BYTES = 10  # bytes of the same
    ALL_STAGES = 11  # so many stages of everybody do
    DISK_FULL = 12


class Blocked(Control, frozen=True, gc=False, array_like=True, tag=56):
    """Data server -> whoever sent these: not taken for now. A reason is one of `Reason`, or of a
    later version; the bound that was reached is 0 where the reason has none."""

    batches: tuple[tuple[StageKey, Natural, Natural], ...]  # id (stage 0: a run), reason, bound
