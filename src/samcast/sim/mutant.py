"""How a mutant is made: a name, the rule that it breaks, and a change of the product from
outside.
"""

from collections.abc import Callable
from typing import Any

import msgspec


class Mutant(msgspec.Struct, frozen=True):
    """One unsafe rule, put back."""

    name: str
    rule: str
    apply: Callable[[], None]


def replace(owner: Any, name: str, new: Any) -> None:
    """Put something in the place of a method or function; it must have been there."""
    if not hasattr(owner, name):
        raise LookupError(f"{owner} has no {name}: the product changed, the mutant must follow")
    setattr(owner, name, new)
