"""A word to people who wait for longer than they would expect."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import typer

SAY_AFTER_S = 3.0
TEXT = (
    "samcast: still waiting: too few nodes are up, or nobody leads yet; `samcast doctor` says more"
)


@contextmanager
def patience(after_s: float = SAY_AFTER_S) -> Iterator[None]:
    """Say, once, that the cluster keeps us waiting, if what is done here takes so long."""
    timer = threading.Timer(after_s, lambda: typer.echo(TEXT, err=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
