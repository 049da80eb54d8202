"""Control messages about states that somebody else has folded, and hands to a checkpoint server.

A state comes in files: blocks, which tasks of a job give in any order, each known by its part and
its place in it; and at last the list of all blocks, as part 0. Tags go on from `wire.rows`.
"""

from typing import Annotated

from msgspec import Meta

from samcast.wire.control import Control
from samcast.wire.order import Checkpoint, FoldName, Natural

PIECE_BYTES_MAX = 1024 * 1024
LIST_PART = 0

Text = Annotated[str, Meta(max_length=2000)]
Piece = Annotated[bytes, Meta(max_length=PIECE_BYTES_MAX)]


class HandIn(Control, frozen=True, gc=False, array_like=True, tag=44):
    """Job -> checkpoint server: a piece of a file of the state at a number."""

    group: Natural
    number: Natural
    job: Natural
    part: Natural
    at: Natural
    offset: Natural
    total: Natural
    data: Piece


class HandedIn(Control, frozen=True, gc=False, array_like=True, tag=45):
    """Checkpoint server -> job: so much of that file is here; or why it is not taken."""

    group: Natural
    number: Natural
    job: Natural
    part: Natural
    at: Natural
    offset: Natural
    refused: Text = ""


class StatesRequest(Control, frozen=True, gc=False, array_like=True, tag=46):
    """Anyone -> checkpoint server: which states of a group do you hold?"""

    group: Natural


class States(Control, frozen=True, gc=False, array_like=True, tag=47):
    """Checkpoint server -> anyone: these, oldest first; and of which job a state was last looked at
    here, and why it was refused, if it was."""

    group: Natural
    fold: FoldName
    fold_version: Natural
    checkpoints: tuple[Checkpoint, ...]
    job: Natural = 0
    refused: Text = ""
