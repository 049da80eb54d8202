"""Control messages about stages whose decision is somebody else's: who has put them on a disk?

Tags go on from those of `wire.retention`.
"""

from samcast.wire.control import Control
from samcast.wire.order import Digest, Natural, SenderId

# group, owner, incarnation, tx, stage
StageKey = tuple[Natural, SenderId, Natural, Natural, Natural]


class StagesRequest(Control, frozen=True, gc=False, array_like=True, tag=39):
    """Who sent stages -> data server: which of these do you have?"""

    stages: tuple[StageKey, ...]
    digests: tuple[Digest, ...]  # of the same


class Stages(Control, frozen=True, gc=False, array_like=True, tag=40):
    """Data server -> who asked: where each of them is."""

    uuid: Natural
    durable: tuple[StageKey, ...]
    writing: tuple[StageKey, ...]
    over: tuple[StageKey, ...]  # can't be decided any more, or are others than were sent
    unknown: tuple[StageKey, ...]
