"""Chance for the roles of a real process."""

import random
import secrets


class SystemChance:
    """Nonces and jitter, seeded by the operating system; they must differ, not be secret."""

    def __init__(self) -> None:
        self._random = random.Random(secrets.randbits(256))

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        return self._random.randrange(bound)
