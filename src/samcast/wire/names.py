"""Control messages about the names in use. Tags go on from `wire.stretch`."""

from samcast.wire.control import Control
from samcast.wire.order import Label, Natural, Record, SenderId

NAMES_PER_REPLY_MAX = 1000


class Named(Record, frozen=True, gc=False, array_like=True):
    """One name: of a sender of a group, or of an owner of transactions."""

    sender: SenderId
    label: Label  # "": whoever opened it did not say
    incarnation: Natural
    done: Natural  # messages, or transactions
    last: Natural  # number, in the cell index, of its last use; 0: none
    is_anonymous: bool = False


class NamesRequest(Control, frozen=True, gc=False, array_like=True, tag=49):
    """Client -> commit server: who has a name in this group, or in the cell? By id, above this."""

    scope: Natural
    above: bytes = b""


class Names(Control, frozen=True, gc=False, array_like=True, tag=50):
    """Commit server -> client: the next of them, from committed state."""

    scope: Natural
    above: bytes
    names: tuple[Named, ...]
    is_more: bool
    limit: Natural  # of names that users chose
