"""The code keeps its own rules: who imports whom, what is pure, how long things get, what is out.

The rules stand in `tidy_rules`. Here each is held against the repository, and against a sample that
breaks it: a rule that can't fail holds nothing.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests import tidy_rules as rules
from tests.tidy_rules import Rule

ROOT = Path(__file__).resolve().parent.parent
TEXT_FILES = ("*.md", "*.py", "*.toml", "*.txt", "*.lock", "dev", "run")
TEXT_FOLDERS = ("src", "tests", "docs", "tools", ".ci")


def files_of_product() -> Iterator[Path]:
    yield from (ROOT / "src").rglob("*.py")


def files_of_tests() -> Iterator[Path]:
    yield from (ROOT / "tests").rglob("*.py")


def files_of_text() -> Iterator[Path]:
    for pattern in TEXT_FILES:
        yield from ROOT.glob(pattern)
        for folder in TEXT_FOLDERS:
            yield from (ROOT / folder).rglob(pattern)


def findings(rule: Rule, files: Iterator[Path]) -> list[str]:
    return [
        str(finding)
        for path in sorted(files)
        if path.is_file()
        for finding in rule(
            PurePosixPath(path.relative_to(ROOT).as_posix()), path.read_text(encoding="utf-8")
        )
    ]


def report(found: list[str]) -> str:
    return "\n".join(["", *found])


@pytest.mark.parametrize("rule", rules.PRODUCT_RULES, ids=lambda rule: rule.__name__)
def test_the_product_keeps_the_rule(rule: Rule) -> None:
    found = findings(rule, files_of_product())
    assert not found, report(found)


@pytest.mark.parametrize("rule", rules.TEST_RULES, ids=lambda rule: rule.__name__)
def test_the_tests_keep_the_rule(rule: Rule) -> None:
    found = findings(rule, files_of_tests())
    assert not found, report(found)


@pytest.mark.parametrize("rule", rules.TEXT_RULES, ids=lambda rule: rule.__name__)
def test_every_text_keeps_the_rule(rule: Rule) -> None:
    found = findings(rule, files_of_text())
    assert not found, report(found)


@pytest.mark.parametrize("rule", rules.LOCK_RULES, ids=lambda rule: rule.__name__)
def test_the_lock_file_keeps_the_rule(rule: Rule) -> None:
    found = findings(rule, iter([ROOT / "requirements.lock"]))
    assert not found, report(found)


# Samples: a bad one must be found at its line; a good one is the nearest thing that is allowed.

HOME = "/" + "home"  # in two pieces, or the sample would break the rule that it is for
MARK = "TO" + "DO"
LONG_FUNCTION = "def long():\n" + "    x = 1\n" * rules.FUNCTION_LINES_MAX
LONG_METHOD = "class A:\n    async " + LONG_FUNCTION.replace("\n", "\n    ")
LONG_MODULE = "x = 1\n" * rules.MODULE_LINES_MAX

BAD: list[tuple[Rule, str, str, int]] = [
    (rules.layers, "wire/frame.py", "import samcast.machine.ids", 1),
    (rules.layers, "machine/ids.py", "\nfrom samcast.group import sender", 2),
    (rules.layers, "group/sender.py", "from samcast.runtime.host import Host", 1),
    (rules.layers, "group/sender.py", "from samcast import runtime", 1),
    (rules.layers, "group/sender.py", "from .. import runtime", 1),
    (rules.layers, "group/sender.py", "from ..runtime.host import Host", 1),
    (rules.layers, "group/sender.py", "def f():\n    import samcast.sim.world", 2),
    (rules.layers, "group/sender.py", "from samcast import connect", 1),
    (rules.layers, "group/sender.py", "import samcast", 1),
    (rules.layers, "broker/session.py", "from samcast.gateway import engine", 1),
    (rules.layers, "sim/world.py", "from samcast.runtime import host", 1),
    (rules.layers, "runtime/host.py", "from samcast.sim import world", 1),
    (rules.layers, "client/connect.py", "from samcast.cli import main", 1),
    (rules.layers, "errors.py", "from samcast.wire import frame", 1),
    (rules.layers, "other/thing.py", "", 1),
    (rules.purity_of_imports, "wire/frame.py", "import os", 1),
    (rules.purity_of_imports, "group/sender.py", "x = 1\nfrom time import monotonic", 2),
    (rules.purity_of_imports, "group/sender.py", "import os.path", 1),
    (rules.purity_of_imports, "gateway/engine.py", "def f():\n    import random", 2),
    (rules.purity_of_imports, "sim/world.py", "import time", 1),
    (rules.purity_of_calls, "machine/ids.py", "x = 1\nprint(x)", 2),
    (rules.purity_of_calls, "wire/journal.py", "open('journal')", 1),
    (rules.purity_of_calls, "group/sender.py", "def f(x):\n    return hash(x)", 2),
    (rules.purity_of_calls, "group/sender.py", "import builtins\nbuiltins.id(1)", 2),
    (rules.seeded_chance, "sim/world.py", "import random\nrandom.shuffle([1])", 2),
    (rules.seeded_chance, "sim/world.py", "import random as r\nr.random()", 2),
    (rules.seeded_chance, "sim/world.py", "from random import randrange", 1),
    (rules.seeded_chance, "sim/runner.py", "import random\nx = random.Random()", 2),
    (rules.sets_in_no_order, "group/sender.py", "for x in {1, 2}:\n    pass", 1),
    (rules.sets_in_no_order, "group/sender.py", "y = 1\nx = [x for x in set(y)]", 2),
    (rules.sets_in_no_order, "group/sender.py", "for x in frozenset(y):\n    pass", 1),
    (rules.sets_in_no_order, "group/sender.py", "x = list(set(y))", 1),
    (rules.sets_in_no_order, "group/sender.py", "for x in set(y) - z:\n    pass", 1),
    (rules.sets_in_no_order, "group/sender.py", "f(*{1, 2})", 1),
    (rules.sets_in_no_order, "group/sender.py", "x = {1}\nfor y in x:\n    pass", 2),
    (rules.sets_in_no_order, "group/sender.py", "def f(x: set[int]):\n    return list(x)", 2),
    (rules.sets_in_no_order, "sim/world.py", "x = ','.join({'a', 'b'})", 1),
    (
        rules.sets_in_no_order,
        "group/sender.py",
        "class A:\n"
        "    def __init__(self):\n"
        "        self.seen: set[int] = set()\n"
        "    def f(self):\n"
        "        for x in self.seen:\n"
        "            pass\n",
        5,
    ),
    (rules.sizes, "wire/frame.py", LONG_FUNCTION, 1),
    (rules.sizes, "wire/frame.py", LONG_METHOD, 2),
    (rules.sizes, "wire/frame.py", LONG_MODULE + "y = 1\n", rules.MODULE_LINES_MAX + 1),
    (rules.banned_calls, "runtime/host.py", "import pickle", 1),
    (rules.banned_calls, "runtime/host.py", "from marshal import loads", 1),
    (rules.banned_calls, "runtime/host.py", "\nimport shelve", 2),
    (rules.banned_calls, "cli/main.py", "x = 1\neval('x')", 2),
    (rules.banned_calls, "cli/main.py", "exec('x')", 1),
    (rules.banned_calls, "cli/main.py", "__import__('os')", 1),
    (rules.banned_calls, "cli/main.py", "import yaml\nyaml.load(x)", 2),
    (rules.banned_calls, "cli/main.py", "from yaml import load", 1),
    (rules.file_names, "wire/utils.py", "", 1),
    (rules.file_names, "common.py", "", 1),
    (rules.file_names, "group/helpers.py", "", 1),
    (rules.file_names, "machine/base.py", "", 1),
    (rules.docstrings, "wire/frame.py", "x = 1", 1),
    (rules.docstrings, "wire/frame.py", '"""   """', 1),
    (rules.unfinished, "wire/frame.py", f"x = 1\n# {MARK}: more", 2),
    (rules.machine_paths, "wire/frame.py", f"\nPATH = '{HOME}/me/x'", 2),
    (rules.machine_paths, "wire/frame.py", f"see {HOME}", 1),
    (rules.no_sleep, "../../tests/test_x.py", "import time\ntime.sleep(1)", 2),
    (rules.no_sleep, "../../tests/test_x.py", "from time import sleep", 1),
    (rules.locked, "../../requirements.lock", "a==1 \\\n    --hash=sha256:0\nb>=1\n", 3),
    (rules.locked, "../../requirements.lock", "b==1\n", 1),
    (rules.locked, "../../requirements.lock", "# x\n--index-url somewhere\n", 2),
    (rules.locked, "../../requirements.lock", "a @ file://x\n", 1),
]

GOOD: list[tuple[Rule, str, str]] = [
    (rules.layers, "wire/frame.py", "import samcast.limits\nfrom samcast import errors"),
    (rules.layers, "wire/frame.py", "from samcast.wire.codec import encode"),
    (rules.layers, "group/sender.py", "from samcast.machine import ids\nimport samcast.wire.frame"),
    (rules.layers, "sim/world.py", "from samcast.group import sender\nimport random"),
    (rules.layers, "cli/main.py", "from samcast import __version__\nfrom samcast.sim import world"),
    (rules.layers, "config.py", "from samcast.errors import ConfigError"),
    (rules.layers, "__init__.py", "from samcast.client import connect"),
    (rules.purity_of_imports, "group/sender.py", "import collections\nfrom hashlib import blake2b"),
    (rules.purity_of_imports, "runtime/host.py", "import asyncio"),
    (rules.purity_of_imports, "sim/world.py", "import random"),
    (rules.purity_of_imports, "sim/__main__.py", "import os\nimport time"),
    (rules.purity_of_imports, "sim/runner.py", "import os"),
    (rules.purity_of_imports, "sim/mutants_disk.py", "import time"),
    (rules.purity_of_imports, "sim/mutants/__main__.py", "import time"),
    (rules.purity_of_calls, "group/sender.py", "self.open(1)\nx = stage.id"),
    (rules.purity_of_calls, "cli/main.py", "print(1)"),
    (rules.seeded_chance, "sim/world.py", "import random\nx = random.Random(7)\nx.random()"),
    (rules.sets_in_no_order, "group/sender.py", "for x in sorted({1, 2}):\n    pass"),
    (rules.sets_in_no_order, "group/sender.py", "x = any(y > 1 for y in {1, 2})"),
    (rules.sets_in_no_order, "group/sender.py", "x = {y + 1 for y in {1, 2}}\nz = 1 in {1, 2}"),
    (rules.sets_in_no_order, "group/sender.py", "for x in {1: 2}:\n    pass"),
    (rules.sets_in_no_order, "group/sender.py", "x = {1}\nx = sorted(x)\nfor y in x:\n    pass"),
    (rules.sets_in_no_order, "cli/main.py", "for x in {1, 2}:\n    pass"),
    (rules.sizes, "wire/frame.py", LONG_MODULE),
    (rules.banned_calls, "cli/main.py", "import yaml\nyaml.safe_load(x)\nself.exec(1)"),
    (rules.file_names, "wire/database.py", ""),
    (rules.docstrings, "wire/frame.py", '"""Frames."""'),
    (rules.unfinished, "wire/frame.py", "# what is still to do"),
    (rules.machine_paths, "wire/frame.py", "a/home and https://example.org/home and ../work"),
    (rules.no_sleep, "../../tests/test_x.py", "import time\ntime.monotonic()"),
    (rules.locked, "../../requirements.lock", "# x\na==1 ; b == 'c' \\\n    --hash=sha256:0\n"),
]


def sample_path(name: str) -> PurePosixPath:
    outside = name.removeprefix("../../")
    return PurePosixPath(outside) if outside != name else rules.PACKAGE / name


@pytest.mark.parametrize(("rule", "name", "source", "line"), BAD)
def test_a_bad_sample_is_found_where_it_is_bad(
    rule: Rule, name: str, source: str, line: int
) -> None:
    path = sample_path(name)
    found = list(rule(path, source))
    assert [finding.line for finding in found] == [line]
    assert str(found[0]).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(("rule", "name", "source"), GOOD)
def test_a_good_sample_passes(rule: Rule, name: str, source: str) -> None:
    assert list(rule(sample_path(name), source)) == []


def test_each_rule_has_a_bad_and_a_good_sample() -> None:
    held = {*rules.PRODUCT_RULES, *rules.TEST_RULES, *rules.TEXT_RULES, *rules.LOCK_RULES}
    assert held == {rule for rule, *_ in BAD}
    assert held == {rule for rule, *_ in GOOD}


def test_the_walk_sees_the_repository() -> None:
    texts = {path.relative_to(ROOT).as_posix() for path in files_of_text() if path.is_file()}
    assert {"README.md", "dev", ".ci/run", "tools/dev.py", "docs/requirements.md"} <= texts
    assert ROOT / "src/samcast/errors.py" in set(files_of_product())
    assert Path(__file__).resolve() in set(files_of_tests())
