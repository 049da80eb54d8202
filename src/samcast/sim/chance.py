"""The one source of chance of a simulated world; everything random is drawn from it."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class SeededChance:
    """Draws that repeat with the seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.unit = self._random.random  # in [0, 1)

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        return int(self.unit() * bound) if bound < 2**32 else self._random.randrange(bound)

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return low + int(self.unit() * (high - low + 1))

    def happens(self, probability: float) -> bool:
        """True with this probability."""
        return self.unit() < probability

    def pick(self, things: Sequence[T]) -> T:
        """One of them."""
        return things[int(self.unit() * len(things))]

    def some(self, things: Sequence[T], count: int) -> list[T]:
        """So many different ones, in random order."""
        return self._random.sample(things, count)

    def bytes(self, count: int) -> bytes:
        """Random bytes."""
        return self._random.randbytes(count)

    def fingerprint(self) -> int:
        """Where the generator stands: part of the unseed."""
        return self._random.getrandbits(64)
