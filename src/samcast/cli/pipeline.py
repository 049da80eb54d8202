"""`samcast pipeline`: runs PySpark files."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import ConfigError

app = typer.Typer(help="Run PySpark files on groups and tables.", no_args_is_help=True)
MASTER = Annotated[
    str, typer.Option(help="local[*]: in this process; or spark://host:port and the like.")
]
Show = Callable[[str, dict[str, Any]], None]


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A plain PySpark file; what follows is for it.")],
    master: MASTER = "local[*]",
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Run a file with a Spark session that is ready for it, and show what its streams do."""
    from samcast.pipeline.running import run_file

    with _shown() as show:
        run_file(file, context.args, master, address_of(cluster, folder), show)


@app.command("archive")
def archive(
    group: Annotated[str, typer.Argument(help="Whose messages are archived.")],
    to: Annotated[Path, typer.Option("--to", help="The archive's folder; made if it isn't there.")],
    once: Annotated[bool, typer.Option("--once", help="Only what there is now.")] = False,
    every: Annotated[int, typer.Option(help="Seconds between two parts.", min=1)] = 10,
    rows: Annotated[int, typer.Option(help="Messages of one part, at most.", min=1)] = 1_000_000,
    lease_days: Annotated[
        int, typer.Option(help="How long the job may be away before its messages may go.", min=1)
    ] = 7,
    master: MASTER = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Move a group's messages to Parquet files as they come; nothing goes before it is there.

    Ends with ctrl-C, or with --once when all is archived; begun again, it goes on where it was.
    """
    from samcast.pipeline.archiving import Job, archive_group

    job = Job(address_of(cluster, folder), group, to, once, every, rows, lease_days)
    with _shown() as show:
        made = archive_group(job, master, show)
    last = made.end - 1
    if as_json:
        typer.echo(json.dumps({"group": group, "first": made.first, "last": last,
                               "parts": len(made.parts)}))  # fmt: skip
    else:
        typer.echo(f"{to}: messages {made.first} to {last} of {group!r}, {len(made.parts)} parts")


@app.command("audit")
def audit(
    group: Annotated[str, typer.Argument(help="Whose messages are compared.")],
    to: Annotated[Path, typer.Option("--to", help="The page to write.")] = Path("audit.html"),
    record: Annotated[
        list[Path] | None,
        typer.Option(help="What a member recorded (`samcast read --record`); or a folder of such."),
    ] = None,
    first: Annotated[int, typer.Option("--from", help="The first number.", min=0)] = 0,
    last: Annotated[int, typer.Option("--to-number", help="The last number.", min=0)] = 0,
    master: MASTER = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON, too.")] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Compare what members delivered, commit servers ordered and data servers keep.

    The first line says whether all agree; if not, from which number on, and the exit code is 1.
    """
    import msgspec

    from samcast.pipeline.audit_report import page
    from samcast.pipeline.auditing import audit_group

    records = [found for path in record or [] for found in _records(path)]
    end = last + 1 if last else 0
    made = audit_group(address_of(cluster, folder), group, records, master, first, end)
    to.write_text(page(made))
    if as_json:
        typer.echo(msgspec.json.encode({"verdict": made.verdict, **asdict(made)}).decode())
    else:
        typer.echo(f"{made.verdict} {to} has the details")
    if made.findings:
        raise typer.Exit(1)


def _records(path: Path) -> list[Path]:
    if not path.exists():
        raise ConfigError(f"{path}: no such record")
    return sorted(path.iterdir()) if path.is_dir() else [path]


@contextmanager
def _shown() -> Iterator[Show]:
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
