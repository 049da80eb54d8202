"""What all control messages share."""

from samcast.wire.order import Record


class Control(Record, frozen=True, gc=False, array_like=True):
    """Frozen, positional, and tagged with an integer that is never used again."""
