"""The command line as a user meets it."""

import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import samcast
from samcast.cli import main
from samcast.cli.patience import TEXT, patience
from samcast.errors import ConfigError, SamcastError

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_version_is_the_one_of_the_project() -> None:
    result = CliRunner().invoke(main.app, ["--version"])
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    assert result.exit_code == 0
    assert result.output == f"samcast {project['version']}\n"
    assert samcast.__version__ == project["version"]


def test_without_a_subcommand_it_lists_them() -> None:
    result = CliRunner().invoke(main.app, [])
    assert "sim" in result.output


def test_an_unknown_subcommand_is_named_and_refused() -> None:
    result = CliRunner().invoke(main.app, ["conjure"])
    assert result.exit_code == 2
    assert "conjure" in result.output


def test_our_errors_are_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ConfigError("k_data is 4 of 3 data servers; set it to 3 or less")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as stop:
        main.main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == (
        "samcast: k_data is 4 of 3 data servers; set it to 3 or less\n"
    )


def test_a_config_error_can_be_caught_as_ours_or_as_a_value_error() -> None:
    assert issubclass(ConfigError, SamcastError)
    assert issubclass(ConfigError, ValueError)


def test_the_simulator_is_not_loaded_before_it_is_asked_for() -> None:
    program = "import sys, samcast.cli.main; sys.exit('samcast.sim' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_whoever_waits_for_long_hears_why_and_nobody_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with patience(30):
        pass
    assert capsys.readouterr().err == ""
    with patience(0.01):
        threading.Event().wait(0.5)
    assert capsys.readouterr().err == TEXT + "\n"
