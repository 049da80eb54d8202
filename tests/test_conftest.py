"""The rule about skips, tried on small test runs of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIP_TEST = "import pytest\n\n@pytest.mark.skip(reason='no anvil')\ndef test_it():\n    pass\n"
SKIP_MODULE = "import pytest\n\npytest.importorskip('a_tool_that_nobody_has', reason='no anvil')\n"
XFAIL = "import pytest\n\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"
PASS = "def test_other():\n    pass\n"


def run(folder: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_sample.py").write_text(source)
    (folder / "test_other.py").write_text(PASS)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)],
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", [SKIP_TEST, SKIP_MODULE])
@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_a_skip_is_listed_and_fails_only_in_ci(
    tmp_path: Path, source: str, ci: str, code: int
) -> None:
    result = run(tmp_path, source, ci)
    assert result.returncode == code, result.stdout
    section = result.stdout.split("skipped tests (")[1]
    assert "test_sample.py" in section
    assert "no anvil" in section


def test_without_skips_ci_passes_and_nothing_is_listed(tmp_path: Path) -> None:
    result = run(tmp_path, XFAIL, "true")
    assert result.returncode == 0, result.stdout
    assert "skipped tests" not in result.stdout
