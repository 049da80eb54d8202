"""What a user says about what stays of a group, as the settings that are ordered.

Checkpoints and deletion are two things: a fold makes checkpoints, and messages go only where what
stays was said. Settings from before there was this choice mean what they meant then.
"""

from msgspec.structs import replace

from samcast.errors import ConfigError
from samcast.wire.order import FOREVER, Keep


def bounded(keep: Keep, count: int, size: int, age_ms: int, is_checkpointed: bool) -> Keep:
    """Other bounds; none of them is for ever, unless what is in two checkpoints may go."""
    if is_checkpointed and not keep.fold:
        raise ConfigError(
            "there are no checkpoints of this group, so nothing is in two of them; have them made"
            " first (`samcast group fold`)"
        )
    made = replace(keep, count=count, size=size, age_ms=age_ms)
    is_forever = keep.fold and not is_checkpointed and not made.has_bounds
    return replace(made, count=FOREVER) if is_forever else made


def folded(keep: Keep, fold: str, version: int, interval: int, by_jobs: bool) -> Keep:
    """Checkpoints by this fold. What stays and what goes is as it was."""
    said = {"fold": fold, "fold_version": version, "interval": interval, "by_jobs": by_jobs}
    return replace(keep, **said, count=keep.count if keep.lets_go else FOREVER)


def unfolded(keep: Keep) -> Keep:
    """No more checkpoints. What stayed until it was in two of them stays for ever."""
    said = {"fold": "", "fold_version": 0, "interval": 0, "by_jobs": False}
    return replace(keep, **said, count=keep.count if keep.count != FOREVER else 0)


def newly_going(before: Keep, after: Keep, collected: int, head: int) -> int:
    """At most how many of the messages that are there go, by and by, that would have stayed until
    now. How many go by size or age, only servers know: all of them may."""
    if not after.lets_go or (before.lets_go and not before.has_bounds):
        return 0
    pairs = zip(_bounds(before), _bounds(after), strict=True)
    is_tighter = any(new and (not old or new < old) for old, new in pairs)
    if before.lets_go and after.has_bounds and not is_tighter:
        return 0
    is_by_count = after.has_bounds and not after.size and not after.age_ms
    return max(0, head - after.count - collected) if is_by_count else head - collected


def _bounds(keep: Keep) -> tuple[int, int, int]:
    return keep.count, keep.size, keep.age_ms


def is_of_other_state(before: Keep, after: Keep) -> bool:
    """Whether checkpoints that there are become void."""
    return bool(before.fold) and (before.fold, before.fold_version) != (
        after.fold,
        after.fold_version,
    )
