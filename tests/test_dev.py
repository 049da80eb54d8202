"""`./dev`: when it sets up, what it does where something is missing, what it passes on."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import dev

DEV = Path(dev.__file__).resolve().parent.parent / "dev"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty repository in which making and installing are only noted down."""
    venv = tmp_path / ".venv"
    done: list[str] = []

    def make() -> None:
        shutil.rmtree(venv, ignore_errors=True)
        (venv / "bin").mkdir(parents=True)
        (venv / "bin/python").touch()
        done.append("make")

    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "VENV", venv)
    monkeypatch.setattr(dev, "VENV_PYTHON", venv / "bin/python")
    monkeypatch.setattr(dev, "STAMP", venv / "setup-stamp")
    monkeypatch.setattr(dev, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(dev, "PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(dev, "make_venv", make)
    monkeypatch.setattr(dev, "install", lambda: done.append("install"))
    dev.LOCK.write_text("a==1")
    dev.PROJECT.write_text("[project]")
    return done


def test_a_missing_venv_is_made_once(steps: list[str]) -> None:
    assert dev.ensure_venv()
    assert not dev.ensure_venv()
    assert steps == ["make", "install"]


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_change_of_what_is_pinned_installs_on_top(
    steps: list[str], tmp_path: Path, name: str
) -> None:
    dev.ensure_venv()
    (tmp_path / name).write_text("changed")
    assert dev.ensure_venv()
    assert steps == ["make", "install", "install"]


def test_an_interrupted_setup_is_done_from_scratch(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    dev.ensure_venv()
    dev.LOCK.write_text("a==2")
    with monkeypatch.context() as patch:
        patch.setattr(dev, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dev.ensure_venv()
    dev.LOCK.write_text("a==1")  # Even what was there before is no longer to be trusted.
    assert dev.ensure_venv()
    assert steps == ["make", "install", "make", "install"]


def test_a_moved_repository_or_a_lost_python_needs_a_new_venv(
    steps: list[str], tmp_path: Path
) -> None:
    dev.ensure_venv()
    dev.write_stamp(dev.stamp_wanted()._replace(place="cpython-311 elsewhere"))
    assert dev.ensure_venv()
    dev.VENV_PYTHON.unlink()
    assert dev.ensure_venv()
    assert steps == ["make", "install"] * 3


@pytest.mark.parametrize("damage", [b"", b"one line\n", b"\xff\xfe\n\n", b"a\nb\nc\n"])
def test_a_damaged_stamp_needs_a_new_venv(steps: list[str], damage: bytes) -> None:
    dev.ensure_venv()
    dev.STAMP.write_bytes(damage)
    assert dev.ensure_venv()
    assert steps == ["make", "install"] * 2


class Machine:
    """A Debian without python3-venv, as far as `dev` asks."""

    def __init__(self, patch: pytest.MonkeyPatch, user: int, apt: str | None, mends: bool) -> None:
        self.commands: list[list[str]] = []
        self.has_parts = False
        self.mends = mends
        patch.setattr(dev, "venv_parts_present", lambda: self.has_parts)
        patch.setattr(dev, "run_quietly", self.run)
        patch.setattr(os, "geteuid", lambda: user)
        patch.setattr(shutil, "which", lambda name: apt)

    def run(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.commands.append(command)
        self.has_parts = self.mends and "install" in command


PACKAGE = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"


def test_root_gets_the_missing_package_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, user=0, apt="apt-get", mends=True)
    dev.ensure_venv_parts("python3")
    assert machine.commands == [["apt-get", "update"], ["apt-get", "install", "-y", PACKAGE]]


@pytest.mark.parametrize(
    ("user", "apt", "advice"),
    [
        (1000, "apt-get", f"sudo sh -c 'apt-get update && apt-get install -y {PACKAGE}'"),
        (1000, None, "your system's package manager"),
        (0, "apt-get", "isn't the system's own Python"),
    ],
)
def test_where_it_cannot_help_it_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch, user: int, apt: str | None, advice: str
) -> None:
    Machine(monkeypatch, user, apt, mends=False)
    with pytest.raises(dev.CannotRunError) as error:
        dev.ensure_venv_parts("python3")
    assert advice in str(error.value)


def test_a_machine_that_lacks_something_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking() -> bool:
        raise dev.CannotRunError("no anvil; buy one")

    monkeypatch.setattr(dev, "ensure_venv", lacking)
    assert dev.main(["setup"]) == 2
    assert capsys.readouterr().err == "dev: no anvil; buy one\n"


def test_the_output_of_a_failed_step_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"]
    monkeypatch.setattr(dev, "ensure_venv", lambda: dev.run_quietly(step))
    assert dev.main(["setup"]) == 1
    assert "the reason" in capsys.readouterr().err


def test_help_lists_every_chore(capsys: pytest.CaptureFixture[str]) -> None:
    assert dev.main([]) == 0
    text = capsys.readouterr().out
    for name, chore in dev.CHORES.items():
        assert f"  {name} " in text
        assert chore.purpose in text


@pytest.mark.parametrize("arguments", [["conjure"], ["check", "src"], ["setup", "--fast"]])
def test_what_it_does_not_know_it_refuses(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(arguments) == 2
    assert arguments[-1] in capsys.readouterr().err


def test_it_needs_the_standard_library_only() -> None:
    tree = ast.parse(Path(dev.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.parametrize("chosen", [None, "python3"])
def test_without_a_fitting_python_the_script_says_so(tmp_path: Path, chosen: str | None) -> None:
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "dirname")
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    environment = {"PATH": str(tmp_path)} | ({"PYTHON": chosen} if chosen else {})
    result = subprocess.run(
        ["/bin/sh", DEV, "help"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "Python 3.11 or newer" in result.stderr


def test_the_script_passes_arguments_and_exit_codes_on(tmp_path: Path) -> None:
    fake = tmp_path / "my python"
    fake.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\necho "$@"\nexit 7\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(fake)}
    result = subprocess.run(
        [DEV, "test", "-k", "a b"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 7
    assert result.stdout.endswith("tools/dev.py test -k a b\n")
