"""Control messages about who serves: a change that is asked for, a new disk, a configuration that
is in force.
"""

from samcast.wire.control import Control
from samcast.wire.order import Configuration, Natural, Place, Record


class Join(Control, frozen=True, gc=False, array_like=True, tag=29):
    """Server -> commit servers: is there a later configuration? And if it lists another disk in my
    place, put my new uuid there. One that is listed says so that it is alive."""

    node: Natural
    uuid: Natural
    configuration: Natural


class Moved(Control, frozen=True, gc=False, array_like=True, tag=30):
    """Commit server -> whoever speaks for an old configuration: this one is in force."""

    configuration: Configuration


class ChangeRequest(Record, frozen=True, gc=False, array_like=True, tag=10):
    """Have this configuration follow the one before it. `places` are those of servers that are
    new in it; `is_lost`: what only leaving disks hold is not waited for, since they are gone;
    `admitted`: the uuid of a disk that takes the place of its node's listed one."""

    configuration: Configuration
    places: tuple[Place, ...] = ()
    is_lost: bool = False
    admitted: Natural = 0
