"""`samcast bench`: measures a cluster of its own on this machine."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from samcast.bench.settings import Comparison
from samcast.errors import SamcastError

USUAL = ("send", "many", "one", "large", "failover", "restart")
LONG = (
    "stalled",
    "stored",
    "groups",
    "start",
    "soak",
    "table",
    "join",
    "kept",
    "replace",
    "spark",
    "jobs",
)  # only when asked for by name
GROWTH = ("stored", "groups", "start")


def run(
    what: Annotated[list[str] | None, typer.Argument(help=f"{', '.join(USUAL)}; or, taking longer"
                                                     f" and alone: {', '.join(LONG)}")] = None,
    scale: Annotated[float, typer.Option(help="Do so much of the usual amount.")] = 1.0,
    folder: Annotated[Path | None, typer.Option("--dir", help="On which disk; a new one.")] = None,
    against: Annotated[str, typer.Option(help="Compare with these, in one run:"
                                         " rabbitmq,nats,redis,corosync,etcd,kafka,pysyncobj."
                                         )] = "",
    rounds: Annotated[int, typer.Option(help="Rounds of a comparison.", min=1)] = 3,
    multicast: Annotated[str, typer.Option(help="With nodes that speak to this group:port; the"
                                           " network must have multicast.")] = "",
    is_growth: Annotated[bool, typer.Option("--growth", help="What grows with what is stored, and"
                                         f" what doesn't: {', '.join(GROWTH)}.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Draw a comparison, or `kept`, here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:  # fmt: skip
    """Measure a fresh cluster of three nodes on this machine."""
    if against:
        peers = Comparison(against.split(","), rounds, scale, multicast)
        _compare(peers, folder, svg, as_json=as_json)
        return
    from samcast.bench.measuring import Measuring
    from samcast.runtime.local_cluster import LocalCluster

    found = _measurements()
    chosen = what or list(GROWTH if is_growth else USUAL)
    unknown = [name for name in chosen if name not in found]
    if unknown:
        raise SamcastError(
            f"no such measurement: {', '.join(unknown)}; there are {', '.join(found)}"
        )
    place = Path(tempfile.mkdtemp(prefix="samcast-bench-", dir=folder or Path.cwd()))
    cluster = LocalCluster(place / "cluster")
    results: dict[str, Any] = {}
    try:
        cluster.make(3, multicast=multicast)
        cluster.start_all()
        cluster.await_ready()
        measuring = Measuring(cluster, scale)
        for name in chosen:
            results[name] = found[name](measuring)
            if not as_json:
                typer.echo(f"{name:9} {json.dumps(results[name])}")
    finally:
        cluster.stop_all()
        shutil.rmtree(place)
    if svg is not None and "kept" in results:
        from samcast.bench.series import draw

        svg.write_text(draw(results["kept"]["series"], "Full load, a GB is kept"))
    if as_json:
        typer.echo(json.dumps(results))


def _measurements() -> dict[str, Any]:
    from samcast.bench import (
        changes,
        failures,
        growth,
        joining,
        rates,
        spark_jobs,
        spark_rates,
        starting,
        state,
    )

    modules = (rates, failures, growth, starting, state, joining, changes, spark_rates, spark_jobs)
    return {name: getattr(module, name) for module in modules
            for name in (*USUAL, *LONG) if hasattr(module, name)}  # fmt: skip


def _compare(
    comparison: Comparison, folder: Path | None, svg: Path | None, *, as_json: bool
) -> None:
    from samcast.bench.chart import draw
    from samcast.bench.comparison import compare

    place = Path(tempfile.mkdtemp(prefix="samcast-bench-", dir=folder or Path.cwd()))
    try:
        table = compare(comparison, place, lambda text: typer.echo(text, err=True))
    finally:
        shutil.rmtree(place)
    if svg is not None:
        svg.write_text(draw(table, f"Three nodes each, medians of {comparison.rounds} rounds"))
    if as_json:
        typer.echo(json.dumps(table))
        return
    for name, row in table.items():
        typer.echo(f"{name:16} {json.dumps(row)}")
