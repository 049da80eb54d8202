"""What jobs and queries do, while they do it: bars for people, lines for logs."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

Show = Callable[[str, dict[str, Any]], None]
Count = Callable[[str, int, int], None]


@contextmanager
def counted() -> Iterator[Count]:
    """How much of something is done, for people; logs need no more than the result."""
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done, total=of)

        yield show


@contextmanager
def shown() -> Iterator[Show]:
    """Bars for people, lines for logs."""
    if sys.stderr.isatty():
        with Bars() as bars:
            yield bars.show
    else:
        yield Lines().show


class Lines:
    """A line for each batch, for logs."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def show(self, name: str, progress: dict[str, Any]) -> None:
        """Say what is new."""
        batch = int(progress.get("batchId", 0))
        if self._shown.get(name) == batch:
            return
        self._shown[name] = batch
        rows, rate = progress.get("numInputRows", 0), progress.get("processedRowsPerSecond") or 0
        ends = [source.get("endOffset") for source in progress.get("sources", [])]
        typer.echo(
            f"{name}: batch {batch}, {rows} rows, {float(rate):,.0f} rows/s, up to"
            f" {', '.join(map(_offset, ends)) or '-'}",
            err=True,
        )


class Bars:
    """A bar for each query, for people: how far it is of what there is."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), console=Console(stderr=True),
        )  # fmt: skip
        self._tasks: dict[str, tuple[Any, int]] = {}  # and where it began

    def __enter__(self) -> "Bars":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def show(self, name: str, progress: dict[str, Any]) -> None:
        """Draw what is known by now."""
        sources = progress.get("sources", [])
        ends = [_number(source.get("endOffset")) for source in sources]
        starts = [_number(source.get("startOffset")) for source in sources]
        latest = [_number(source.get("latestOffset")) for source in sources]
        if name not in self._tasks:
            task = self._bars.add_task(name, total=None, rate="")
            self._tasks[name] = (task, sum(starts))
        task, first = self._tasks[name]
        rate = float(progress.get("processedRowsPerSecond") or 0)
        total = max(sum(ends), sum(latest)) - first
        self._bars.update(
            task, completed=sum(ends) - first, total=total, rate=f"{rate:,.0f} rows/s"
        )


def _number(offset: Any) -> int:
    text = _offset(offset)
    return int(text) if text.isdecimal() else 0


def _offset(end: Any) -> str:
    """As people write it."""
    if isinstance(end, str):
        try:
            end = json.loads(end)
        except ValueError:
            return str(end)
    return str(end["number"] - 1) if isinstance(end, dict) and "number" in end else str(end)
