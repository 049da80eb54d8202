"""`docs/requirements.md` and the tests agree: no claim without a test, no mark without a row."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
STATES = {"yes", "partly", "no"}
ROWS_PER_FAMILY = {"GRP": 28, "BRK": 28, "REP": 14, "GTW": 18, "PIP": 9, "OPS": 9}
NONE = "-"


class Row(NamedTuple):
    line: int
    id: str
    promise: str
    state: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


class Mark(NamedTuple):
    """One `pytest.mark.req` call, and the test or class that it decorates (None: the module)."""

    line: int
    ids: tuple[str, ...]
    test: str | None


def rows(text: str) -> Iterator[Row]:
    for line, content in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in content.strip().strip("|").split("|")]
        if re.match(r"\|\s*[A-Z]{3}-\d", content.strip()):
            assert len(cells) == 5, f"requirements.md:{line}: {len(cells)} cells, 5 expected"
            name, promise, state, modules, tests = cells
            yield Row(line, name, promise, state, listed(modules), listed(tests))


def listed(cell: str) -> tuple[str, ...]:
    names = (name.strip().strip("`") for name in cell.split(","))
    return tuple(name for name in names if name and name != NONE)


def marks(source: str) -> Iterator[Mark]:
    """Marks on tests and on classes, in parameters, and in a module's `pytestmark`."""
    tree = ast.parse(source)
    owners: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                owners.update(dict.fromkeys(ast.walk(decorator), node.name))
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Attribute(_, "mark"), "req")):
                ids = tuple(
                    argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)
                    for argument in node.args
                )
                yield Mark(node.lineno, tuple(map(str, ids)), owners.get(node))
            case _:
                pass


def names_of_tests(source: str) -> Iterator[tuple[str, str | None]]:
    """Each test with the class around it."""
    for node in ast.parse(source).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for item in inner:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                yield item.name, node.name if isinstance(node, ast.ClassDef) else None


def problems_of_rows(found: list[Row]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for row in found:
        where = f"requirements.md:{row.line}: {row.id}"
        if row.id in seen:
            yield f"{where} stands in line {seen[row.id]} already"
        seen[row.id] = row.line
        if row.state not in STATES:
            yield f"{where} has the state '{row.state}', not one of {', '.join(sorted(STATES))}"
        if not row.promise:
            yield f"{where} promises nothing"


def problems_of_claims(found: list[Row], root: Path) -> Iterator[str]:
    """A row that claims something names where it is done and which marked test shows it."""
    for row in found:
        where = f"requirements.md:{row.line}: {row.id}"
        if row.state in {"yes", "partly"}:
            if not row.modules:
                yield f"{where} says {row.state} but names no module"
            if not row.tests:
                yield f"{where} says {row.state} but names no test"
        for module in row.modules:
            if not (root / "src/samcast" / module).exists():
                yield f"{where} names src/samcast/{module}, which does not exist"
        for test in row.tests:
            yield from (f"{where} names {problem}" for problem in problems_of_test(row, test, root))


def problems_of_test(row: Row, test: str, root: Path) -> Iterator[str]:
    file, _, name = test.partition("::")
    path = root / "tests" / file
    if not path.is_file() or path.suffix != ".py":
        yield f"tests/{file}, which is no test file"
        return
    source = path.read_text(encoding="utf-8")
    carriers = [mark.test for mark in marks(source) if row.id in mark.ids]
    if not name:
        if not carriers:
            yield f"tests/{file}, where nothing carries the mark req({row.id!r})"
        return
    name = name.rpartition("::")[2]
    classes = [cls for known, cls in names_of_tests(source) if known == name]
    if not classes or not name.startswith("test_"):
        yield f"tests/{test}, but the file has no such test"
    elif not {None, name, *classes} & set(carriers):
        yield f"tests/{test}, which does not carry the mark req({row.id!r})"


def problems_of_marks(known: set[str], folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for mark in marks(path.read_text(encoding="utf-8")):
            where = f"{path.relative_to(folder.parent)}:{mark.line}"
            if not mark.ids:
                yield f"{where}: a req mark without an id"
            yield from (
                f"{where}: {name} is no row of docs/requirements.md"
                for name in mark.ids
                if name not in known
            )


def report(problems: Iterator[str]) -> str:
    return "\n".join(problems)


# The repository.

TABLE = list(rows((ROOT / "docs/requirements.md").read_text(encoding="utf-8")))


def test_every_promise_has_one_row() -> None:
    expected = [
        f"{family}-{number:02}"
        for family, count in ROWS_PER_FAMILY.items()
        for number in range(1, count + 1)
    ]
    assert [row.id for row in TABLE] == expected


def test_rows_are_well_formed() -> None:
    assert report(problems_of_rows(TABLE)) == ""


def test_every_claim_names_a_module_and_a_marked_test() -> None:
    assert report(problems_of_claims(TABLE, ROOT)) == ""


def test_every_mark_names_a_row() -> None:
    assert report(problems_of_marks({row.id for row in TABLE}, ROOT / "tests")) == ""


# Samples: each of the checks above can fail.

MARKED = """
import pytest

@pytest.mark.req("GRP-01")
@pytest.mark.req("GRP-02", "GRP-03")
def test_marked():
    pass

def test_plain():
    pass

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("GRP-04"))])
def test_parameters(x):
    pass

@pytest.mark.req("GRP-05")
class TestClass:
    async def test_inside(self):
        pass
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    for folder in ("src/samcast/group", "tests/group"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/samcast/group/sender.py").touch()
    (tmp_path / "tests/group/test_sender.py").write_text(MARKED)
    (tmp_path / "tests/test_all.py").write_text(
        "import pytest\n\npytestmark = [pytest.mark.req('GRP-06')]\n\ndef test_it():\n    pass\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("| GRP-01 | a | maybe | - | - |", "has the state 'maybe'"),
        ("| GRP-01 |  | no | - | - |", "promises nothing"),
        ("| GRP-01 | a | no | - | - |\n| GRP-01 | a | no | - | - |", "stands in line 1 already"),
    ],
)
def test_a_malformed_row_is_found(line: str, problem: str) -> None:
    assert problem in report(problems_of_rows(list(rows(line))))


def test_a_row_of_other_width_is_found() -> None:
    with pytest.raises(AssertionError, match="4 cells"):
        list(rows("| GRP-01 | a | no | - |"))


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ("GRP-01 | a | yes | - | group/test_sender.py", "names no module"),
        ("GRP-01 | a | partly | group/sender.py | -", "names no test"),
        ("GRP-01 | a | yes | group/gone.py | group/test_sender.py", "gone.py, which does not"),
        ("GRP-01 | a | no | group/gone.py | -", "gone.py, which does not exist"),
        ("GRP-01 | a | yes | group/sender.py | group/test_gone.py", "is no test file"),
        ("GRP-01 | a | yes | group/sender.py | group", "is no test file"),
        ("GRP-09 | a | yes | group/sender.py | group/test_sender.py", "nothing carries the mark"),
        ("GRP-01 | a | yes | group/sender.py | group/test_sender.py::test_no", "no such test"),
        ("GRP-01 | a | yes | group/sender.py | group/test_sender.py::test_plain", "not carry"),
    ],
)
def test_an_empty_claim_is_found(sample: Path, cells: str, problem: str) -> None:
    found = list(problems_of_claims(list(rows(f"| {cells} |")), sample))
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    "cells",
    [
        "GRP-09 | a | no | - | -",
        "GRP-01 | a | yes | `group/sender.py` | `group/test_sender.py`",
        "GRP-01 | a | partly | group/sender.py, group | group/test_sender.py::test_marked",
        "GRP-03 | a | yes | group/sender.py | group/test_sender.py::test_marked",
        "GRP-04 | a | yes | group/sender.py | group/test_sender.py::test_parameters",
        "GRP-05 | a | yes | group/sender.py | group/test_sender.py::TestClass::test_inside",
        "GRP-06 | a | yes | group/sender.py | test_all.py::test_it, test_all.py",
    ],
)
def test_an_honest_claim_passes(sample: Path, cells: str) -> None:
    assert report(problems_of_claims(list(rows(f"| {cells} |")), sample)) == ""


def test_a_mark_without_a_row_is_found(sample: Path) -> None:
    known = {f"GRP-0{number}" for number in range(1, 6)}
    assert report(problems_of_marks(known, sample / "tests")) == (
        "tests/test_all.py:3: GRP-06 is no row of docs/requirements.md"
    )
