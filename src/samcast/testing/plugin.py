"""The pytest plugin: the fixture `cluster`, and the options that choose what it is."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from samcast.testing.real import RealCluster
from samcast.testing.simulated import SimulatedCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--samcast-real` and `--samcast-seed`."""
    group = parser.getgroup("samcast")
    group.addoption(
        "--samcast-real", action="store_true", help="use real processes, not a simulated cluster"
    )
    group.addoption("--samcast-seed", type=int, default=0, help="of the simulated clusters")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how to repeat a failure."""
    report = yield
    uses_cluster = "cluster" in getattr(item, "fixturenames", ())
    if report.failed and uses_cluster and not item.config.getoption("--samcast-real"):
        seed = item.config.getoption("--samcast-seed")
        report.sections.append(("samcast", f"simulated; repeat with --samcast-seed {seed}"))
    return report


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[SimulatedCluster | RealCluster]:
    """A cluster of three nodes for one test."""
    made: SimulatedCluster | RealCluster
    if request.config.getoption("--samcast-real"):
        made = RealCluster(tmp_path / "samcast")
    else:
        made = SimulatedCluster(request.config.getoption("--samcast-seed"))
    try:
        yield made
    finally:
        made.close()
