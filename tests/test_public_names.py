"""What can be had from `samcast` itself: in a fresh process, for a reader of help, and for mypy."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import samcast
from samcast import errors

SCRIPTS = [
    "from samcast import FencedError, connect",
    "import samcast; assert samcast.errors.SamcastError is samcast.SamcastError",
    "from samcast import errors, aio; assert aio.connect",
    "from samcast import *; connect, ReplicatedTable, FencedError",
    "import samcast; assert not hasattr(samcast, 'conect')",
    "import pydoc, samcast; assert 'RefusedError' in pydoc.render_doc(samcast)",
    "import sys, samcast; samcast.errors; assert 'samcast.client' not in sys.modules",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_fresh_process_gets_what_it_asks_for(script: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-500:]


def test_what_a_fresh_process_imports_is_what_is_listed() -> None:
    script = (
        "import samcast\n"
        "assert set(samcast.__all__) <= set(dir(samcast))\n"
        "for name in samcast.__all__: print(name, getattr(samcast, name))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert [line.split()[0] for line in told.stdout.splitlines()] == samcast.__all__


def test_every_error_is_listed() -> None:
    own = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert own == {name for name in samcast.__all__ if name.endswith("Error")}


def test_type_checkers_see_the_same_names_in_the_same_places() -> None:
    tree = ast.parse(Path(samcast.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted([*seen, "__version__"]) == samcast.__all__
    for name, place in seen.items():
        value: Any = getattr(samcast, name)
        home = value.__name__ if name in ("aio", "errors") else f"{value.__module__}.{name}"
        assert home == place


def test_an_unknown_name_is_refused_by_python_and_by_mypy() -> None:
    with pytest.raises(AttributeError, match="module 'samcast' has no attribute 'conect'"):
        samcast.conect()  # type: ignore[attr-defined]
