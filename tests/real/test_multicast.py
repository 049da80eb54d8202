"""Clusters whose nodes speak by UDP multicast, each in a network namespace of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.conftest import NAMESPACE
from tests.real.in_namespace import SCENARIOS


@pytest.mark.req("GRP-13", "GRP-25", "GRP-28")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_on_multicast(scenario: str, tmp_path: Path) -> None:
    # As root of a namespace of users, too, so that nobody needs to be root.
    played = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.real.in_namespace", scenario, str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout + played.stderr
    assert scenario in played.stdout
