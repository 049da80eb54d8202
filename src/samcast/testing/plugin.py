"""The pytest plugin: the fixture `cluster`, and the options that choose what it is."""

from collections.abc import Iterator
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
