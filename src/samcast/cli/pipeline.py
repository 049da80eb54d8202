"""`samcast pipeline`: runs PySpark files."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from samcast.cli.progress import counted, shown
from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import ConfigError

app = typer.Typer(help="Run PySpark files on groups and tables.", no_args_is_help=True)
MASTER = Annotated[
    str, typer.Option(help="local[*]: in this process; or spark://host:port and the like.")
]

CONF = Annotated[
    list[str] | None,
    typer.Option(help="A setting of Spark, as spark.KEY=VALUE; may be given again."),
]


class BadChoice(StrEnum):
    """What a job does about a message that makes no sense to it."""

    SKIP = "skip"
    STOP = "stop"


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A plain PySpark file; what follows is for it.")],
    master: MASTER = "local[*]",
    conf: CONF = None,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Run a file with a Spark session that is ready for it, and show what its streams do."""
    from samcast.pipeline.running import run_file

    with shown() as show:
        run_file(file, context.args, master, address_of(cluster, folder), show, conf or [])


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
    delta: Annotated[
        bool, typer.Option("--delta", help="Also a log for tools that speak Delta.")
    ] = False,
    master: MASTER = "local[*]",
    conf: CONF = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Move a group's messages to Parquet files as they come; nothing goes before it is there.

    Ends with ctrl-C, or with --once when all is archived; begun again, it goes on where it was.
    """
    from samcast.pipeline.archiving import Job, archive_group

    job = Job(address_of(cluster, folder), group, to, once, every, rows, lease_days, delta)
    with shown() as show:
        made = archive_group(job, master, show, conf or [])
    last = made.end - 1
    if as_json:
        typer.echo(json.dumps({"group": group, "first": made.first, "last": last,
                               "parts": len(made.parts)}))  # fmt: skip
    else:
        typer.echo(f"{to}: messages {made.first} to {last} of {group!r}, {len(made.parts)} parts")


@app.command("consolidate")
def consolidate(
    group: Annotated[str, typer.Argument(help="Whose messages are folded; it must have a fold.")],
    at: Annotated[
        int, typer.Option(help="The number to fold up to; 0: where servers are.", min=0)
    ] = 0,
    engine: Annotated[
        str, typer.Option(help="local: in this process; spark; auto: by size.")
    ] = "auto",
    hand_in: Annotated[
        bool, typer.Option("--hand-in/--compare", help="Give it to servers that lack it, or not.")
    ] = True,
    bad: Annotated[
        BadChoice, typer.Option(help="What to do about messages that the fold can't take.")
    ] = BadChoice.SKIP,
    aside: Annotated[
        Path | None, typer.Option(help="A Parquet file for such messages, with their numbers.")
    ] = None,
    master: MASTER = "local[*]",
    conf: CONF = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Fold a group's messages into a checkpoint, on Spark where one machine would not do.

    It begins with the newest checkpoint that is there, and counts as the report of the server that
    takes it. The exit code is 1 if a server has come to another state at this number.
    """
    from samcast.pipeline.consolidating import consolidate as run_job
    from samcast.pipeline.consolidation import Wanted

    wanted = Wanted(at, hand_in, bad is BadChoice.STOP, aside)
    with counted() as show:
        made = run_job(address_of(cluster, folder), group, wanted, show, engine, master, conf or [])
    if as_json:
        typer.echo(json.dumps(asdict(made)))
    else:
        typer.echo(f"{made.verdict} ({made.messages} messages, {made.engine},"
                   f" {made.seconds:.1f} s)\nhash {made.hash}")  # fmt: skip
        if made.bad:
            where = f"; they are in {aside}" if aside is not None else ""
            typer.echo(f"{made.bad} messages are nothing that the fold can take, the first is"
                       f" {made.bad_first}{where}", err=True)  # fmt: skip
    if made.differ:
        raise typer.Exit(1)


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
    conf: CONF = None,
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
    with counted() as show:
        made = audit_group(
            address_of(cluster, folder), group, records, master, show, first, end, conf or []
        )
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
