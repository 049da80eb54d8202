"""`samcast send` and `samcast read`: messages through pipes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import ConfigError, SamcastError

if TYPE_CHECKING:
    from samcast.client.blocking import Group


def send(
    group: Annotated[str, typer.Argument(help="Made if it isn't there.")],
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
    name: Annotated[
        str | None, typer.Option(help="Send under a name; skips what is already in.")
    ] = None,
) -> None:
    """Send a message per line of standard input; ends when all are confirmed."""
    from samcast.client.blocking import NamedSender, connect

    if name is not None and not name.strip():
        raise ConfigError("--name is empty; give a name, or leave it out")
    with connect(address_of(cluster, folder)) as client:
        with patience():
            target = client.group(group)
            sender = target.sender(name) if name is not None else target
        before = sender.sent_before if isinstance(sender, NamedSender) else 0
        place = 0
        for place, line in enumerate(sys.stdin.buffer, 1):
            if place > before:
                sender.send(line.removesuffix(b"\n"))
        with patience():
            sender.flush()
    if sys.stderr.isatty():
        known = f", {min(before, place)} were in already" if before else ""
        typer.echo(f"{max(0, place - before)} confirmed{known}", err=True)


def read(
    group: str,
    start: Annotated[
        int | None, typer.Option("--from", help="The first number; without it, the oldest.")
    ] = None,
    count: Annotated[int | None, typer.Option(help="Stop after so many.", min=1)] = None,
    follow: Annotated[bool, typer.Option(help="Wait for what comes; for ever.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Stop after so many idle s.", min=0)] = None,
    raw: Annotated[bool, typer.Option(help="Bodies only.")] = False,
    node: Annotated[str, typer.Option(help="Read from this node.")] = "",
    multicast: Annotated[
        bool,
        typer.Option(
            "--multicast", help="Hear the cluster's multicast group instead of having it all sent."
        ),
    ] = False,
    archive: Annotated[
        Path | None, typer.Option(help="Its archive, for what is gone from the cluster.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Note what was delivered in this file, for an audit.")
    ] = None,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Print messages as `number<TAB>body`.

    Without --follow or --count, up to the newest; with --count it waits until so many are there.
    """
    from samcast.client.blocking import connect

    address = address_of(cluster, folder)
    with connect(address, multicast=multicast) as client:
        if node:
            places = {name: f"{host}:{port}" for name, host, port in client.nodes}
            if node not in places:
                raise SamcastError(f"there is no node {node!r}; there are {', '.join(places)}")
            client.close()
            client = connect(places[node], multicast=multicast)
        left = count
        with patience():
            source = client.group(group, create=follow)
            if start is None:
                start = _after(source, record) or _oldest(source, archive)
            if left is None and not follow:
                left = max(0, source.head() - start + 1)
        write = sys.stdout.buffer.write
        wanted = source.read(start, count=left, timeout=timeout, archive=archive, record=record)
        for message in wanted:
            write(message.body + b"\n" if raw else b"%d\t%s\n" % (message.number, message.body))
            if follow:
                sys.stdout.buffer.flush()
        sys.stdout.buffer.flush()


def _oldest(source: "Group", archive: Path | None) -> int:
    if archive is None:
        return source.oldest()
    from samcast.archive.index import open_archive

    return min(source.oldest(), open_archive(archive).first)


def _after(source: "Group", record: Path | None) -> int:
    """Where a member that has a record goes on; 0: it has none."""
    if record is None or not record.exists():
        return 0
    from samcast.client.recording import Recorder

    with Recorder(record, source.engine.identity, source.name) as recorder:
        return recorder.number_next
