"""The dashboard as a picture: a cluster with the demo's load, its sequencer killed on the way, a
real Prometheus that fetches the nodes' pages, and each panel of `packaging/grafana.json` drawn from
the answers to its own queries. `./dev dashboard [FILE]`; needs the program `prometheus`.

It shows what the dashboard shows, and that its queries find something; how Grafana draws it is
Grafana's.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from samcast.cli.demo import Demo
from samcast.client.leading import sequencer_of
from samcast.runtime.local_cluster import LocalCluster, free_ports

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "packaging" / "grafana.json"
SECONDS = 100
KILL_AFTER_S = 60
STEP_S = 1
WIDTH, HEIGHT = 400, 210  # of a panel
LEFT, TOP, RIGHT, BOTTOM = 58, 30, 12, 44
COLOURS = ("#0b7a75", "#d1495b", "#edae49", "#30638e", "#7b2d8b", "#6a994e", "#9a6d38", "#52606d")
LEGEND_MAX = 6

Series = tuple[str, list[tuple[float, float]]]  # what it is called, times and values


@contextmanager
def prometheus(folder: Path, pages: list[str]) -> Iterator[str]:
    """A server that fetches these pages every second; its address."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("dashboard: there is no prometheus here; apt install prometheus")
    config = folder / "prometheus.yml"
    scrape = {"job_name": "samcast", "scrape_interval": f"{STEP_S}s",
              "static_configs": [{"targets": pages}]}  # fmt: skip
    config.write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML.
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with (folder / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address={address}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield address
    finally:
        server.terminate()
        server.wait(20)


def answers(address: str, query: str, began: float, ended: float) -> list[dict[str, Any]]:
    """What Prometheus says to a query of a panel."""
    wanted = urllib.parse.urlencode({"query": query, "start": began, "end": ended, "step": STEP_S})
    with urllib.request.urlopen(f"http://{address}/api/v1/query_range?{wanted}") as page:
        found: list[dict[str, Any]] = json.load(page)["data"]["result"]
    return found


def series_of(address: str, panel: dict[str, Any], cluster: str, times: tuple[float, float]) \
        -> list[Series]:  # fmt: skip
    """All lines of a panel."""
    found: list[Series] = []
    for target in panel["targets"]:
        query = target["expr"].replace("$cluster", cluster).replace("$__rate_interval", "5s")
        for one in answers(address, query, *times):
            name = target["legendFormat"]
            for label, value in one["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            values = [(float(at), float(value)) for at, value in one["values"] if value != "NaN"]
            found.append((name, values))
    return found


def drawn(panel: dict[str, Any], lines: list[Series], times: tuple[float, float]) -> list[str]:
    """One panel, at its place."""
    place = panel["gridPos"]
    x, y = place["x"] * WIDTH // 8, 34 + place["y"] * HEIGHT // 8
    unit = panel["fieldConfig"]["defaults"].get("unit", "none")
    most = max((value for _, values in lines for _, value in values), default=0.0) or 1.0
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [f'<g transform="translate({x} {y})">',
             f'<rect x="4" y="4" width="{WIDTH - 8}" height="{HEIGHT - 8}" fill="#ffffff"'
             ' stroke="#d9e2ec"/>',
             f'<text x="14" y="22" font-weight="600">{escape(panel["title"])}</text>']  # fmt: skip
    for share in (0.0, 0.5, 1.0):
        level = TOP + high * (1 - share)
        parts.append(f'<path d="M{LEFT} {level}h{wide}" stroke="#e4e7eb"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{level + 4}" text-anchor="end" font-size="10">'
                     f"{written(most * share, unit)}</text>")  # fmt: skip
    for at, (_, values) in enumerate(lines):
        points = " ".join(
            f"{LEFT + wide * (when - times[0]) / (times[1] - times[0]):.1f},"
            f"{TOP + high * (1 - value / most):.1f}"
            for when, value in values
        )
        colour = COLOURS[at % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"'
                     ' stroke-width="1.5"/>')  # fmt: skip
    for at, (name, _) in enumerate(lines[:LEGEND_MAX]):
        left, top = 14 + (at % 3) * 126, HEIGHT - 26 + (at // 3) * 14
        colour = COLOURS[at % len(COLOURS)]
        parts.append(f'<text x="{left}" y="{top}" font-size="10" fill="{colour}">'
                     f"{escape(name[:22])}</text>")  # fmt: skip
    if not lines:
        parts.append(
            f'<text x="{LEFT + 8}" y="{TOP + high / 2}" fill="#7b8794">nothing of it</text>'
        )
    return [*parts, "</g>"]


def written(value: float, unit: str) -> str:
    """A value of an axis."""
    if unit == "s":
        return f"{value * 1000:.3g} ms"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def picture(address: str, cluster: str, times: tuple[float, float]) -> str:
    """All panels."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = 24 * WIDTH // 8, 34 + rows * HEIGHT // 8
    seconds = f"{times[1] - times[0]:.0f} s"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="system-ui, sans-serif" font-size="13" fill="#1f2933">',
        f'<rect width="{width}" height="{height}" fill="#f5f7fa"/>',
        f'<text x="14" y="23" font-size="16" font-weight="600">Samcast, {seconds}; the sequencer'
        " was killed and came back</text>",
    ]
    for panel in panels:
        parts += drawn(panel, series_of(address, panel, cluster, times), times)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "dashboard.svg")
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        cluster = LocalCluster(folder / "cluster")
        plan = cluster.make(3)
        cluster.start_all()
        try:
            cluster.await_ready()
            demo = Demo(cluster)
            demo.start()
            with prometheus(folder, [node.metrics for node in plan.nodes]) as address:
                time.sleep(KILL_AFTER_S)
                victim = sequencer_of(cluster)
                cluster.kill(victim)
                time.sleep(5)
                cluster.start(victim)
                time.sleep(SECONDS - KILL_AFTER_S - 5)
                now = time.time()
                file.write_text(picture(address, plan.cluster, (now - SECONDS + 15, now)))
            demo.stop()
        finally:
            cluster.stop_all()
    print(f"dashboard: {file}")


if __name__ == "__main__":
    main()
