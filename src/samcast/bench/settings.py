"""What to compare, and how long."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison with others."""

    peers: list[str]
    rounds: int
    scale: float  # so much of the usual amount
    multicast: str = ""  # group:port, for our nodes
