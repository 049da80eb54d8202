"""The rules about the code itself, each a function of a file's path and its text.

A rule yields findings and never reads the disk, so that `test_tidy` can feed it a bad sample and
see it speak up. Paths are relative to the repository: `src/samcast/wire/frame.py`.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple


class Finding(NamedTuple):
    path: PurePosixPath
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


Rule = Callable[[PurePosixPath, str], Iterator[Finding]]

PACKAGE = PurePosixPath("src/samcast")

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# A folder may import itself, the top-level modules, and what stands beside it here.
ORDERING = {"wire", "machine", "group"}
STORING = ORDERING | {"disk"}
SERVICES = {"broker", "objects", "gateway"}  # these three never import each other
BELOW_CLIENT = STORING | SERVICES | {"archive", "checkpoint", "multicast", "runtime"}
LAYERS: dict[str, set[str]] = {
    "wire": set(),
    "machine": {"wire"},
    "group": {"wire", "machine"},
    "disk": ORDERING,
    "multicast": {"wire", "machine"},
    **dict.fromkeys(SERVICES, ORDERING),
    "runtime": STORING | SERVICES | {"checkpoint", "multicast"},
    "checkpoint": ORDERING,
    "archive": ORDERING | {"runtime"},
    "client": BELOW_CLIENT,
    "pipeline": BELOW_CLIENT | {"client"},
    "console": BELOW_CLIENT | {"client"},
    "bench": BELOW_CLIENT | {"client", "pipeline"},
    "cli": BELOW_CLIENT | {"bench", "client", "pipeline", "sim"},
    "testing": BELOW_CLIENT | {"client", "sim"},
    "sim": STORING,
}
TOP_MODULES = {
    "errors",
    "limits",
    "config",
    "version",
}  # open to all, and closed to all but each other
USERS_OF_THE_PUBLIC_API = {"pipeline", "console", "cli"}

PURE = STORING | SERVICES | {"multicast"}
IMPURE_MODULES = {
    "asyncio", "concurrent", "datetime", "fcntl", "glob", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal", "socket",
    "ssl", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
IMPURE_CALLS = {
    "open": "reads or writes the world",
    "print": "reads or writes the world",
    "input": "reads or writes the world",
    "hash": "differs from process to process",
    "id": "differs from process to process",
}
SIM_MAY_IMPORT = {"pathlib", "random"}
# Where the simulator meets the world; costs.py is there to read the clock.
SIM_SHELL = re.compile(r"__main__\.py|runner\.py|mutants.*|costs\.py")

BANNED_MODULES = {"pickle", "marshal", "shelve"}
BANNED_CALLS = {"eval", "exec", "__import__"}
BANNED_FILE_NAMES = {"utils.py", "common.py", "helpers.py", "base.py"}
MARKERS = re.compile("|".join(rf"\b{word}\b" for word in ("TODO", "FIXME", "XXX")))
MACHINE_PATHS = re.compile(
    r"(?<![\w.~<>}/-])/(?:" + "|".join(("home", "root", "tmp", "work", "Users")) + r")(?![\w-])"
)

SET_MAKERS = {"set", "frozenset"}
ORDER_BLIND = {"sorted", "len", "min", "max", "sum", "any", "all", "set", "frozenset"}
ORDER_KEEPING = {"list", "tuple", "iter", "enumerate", "map", "filter", "zip", "reversed", "dict"}


# Reading a file.


@cache
def parse(source: str) -> ast.Module:
    return ast.parse(source)


def layer_of(path: PurePosixPath) -> str | None:
    """The folder below the package, or None for a module that lies in the package itself."""
    if not path.is_relative_to(PACKAGE):
        return None  # `pyspark_samcast`, by whose name PySpark finds us
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def is_sim_shell(path: PurePosixPath) -> bool:
    return layer_of(path) == "sim" and bool(SIM_SHELL.fullmatch(path.parts[len(PACKAGE.parts) + 1]))


def imports(path: PurePosixPath, source: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of all that is imported, `from a import b` giving `a.b`."""
    package = (*path.parent.parts[1:],) if path.is_relative_to("src") else path.parent.parts
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else ()
            stem = ".".join((*start, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def builtin_calls(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of calls such as `open(...)` and `builtins.open(...)`."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(name) | ast.Attribute(ast.Name("builtins"), name):
                    yield node.lineno, name
                case _:
                    pass


# The rules.


def layers(path: PurePosixPath, source: str) -> Iterator[Finding]:
    layer = layer_of(path)
    if layer is None and path.name in {"__init__.py", "__main__.py"}:
        return  # The public API gathers from everywhere.
    if layer is not None and layer not in LAYERS:
        yield Finding(path, 1, f"folder {layer} has no place among the layers of {LAYERS.keys()}")
        return
    allowed = TOP_MODULES | ({layer} | LAYERS[layer] if layer else set())
    for line, name in imports(path, source):
        first, *rest = name.split(".")
        if first != "samcast" or (rest and rest[0] in allowed):
            continue
        if rest and rest[0] not in LAYERS and layer in USERS_OF_THE_PUBLIC_API:
            continue
        yield Finding(path, line, f"{layer or path.stem} must not import {name}")


def purity_of_imports(path: PurePosixPath, source: str) -> Iterator[Finding]:
    layer = layer_of(path)
    if layer in PURE:
        forbidden = IMPURE_MODULES
    elif layer == "sim" and not is_sim_shell(path):
        forbidden = IMPURE_MODULES - SIM_MAY_IMPORT
    else:
        return
    for line, name in imports(path, source):
        if name.split(".")[0] in forbidden:
            yield Finding(path, line, f"{name} is impure; time, chance and I/O come in as events")


def purity_of_calls(path: PurePosixPath, source: str) -> Iterator[Finding]:
    if layer_of(path) in PURE:
        for line, name in builtin_calls(source):
            if name in IMPURE_CALLS:
                yield Finding(path, line, f"{name}() in a pure folder: it {IMPURE_CALLS[name]}")


def seeded_chance(path: PurePosixPath, source: str) -> Iterator[Finding]:
    """The simulator draws from `random.Random(seed)` only, never from the shared generator."""
    if layer_of(path) != "sim":
        return
    for line, name in imports(path, source):
        if name.startswith("random.") and name != "random.Random":
            yield Finding(path, line, f"{name} is not seeded by us; use Random(seed)")
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(parse(source))
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "random"
    }
    for node in ast.walk(parse(source)):
        match node:
            case ast.Attribute(ast.Name(module), name) if module in aliases and name != "Random":
                yield Finding(path, node.lineno, f"random.{name} is shared; use Random(seed)")
            case ast.Call(ast.Attribute(_, "Random") | ast.Name("Random"), [], []):
                yield Finding(path, node.lineno, "Random() without a seed can't be repeated")
            case _:
                pass


def sets_in_no_order(path: PurePosixPath, source: str) -> Iterator[Finding]:
    """Nothing may depend on the order of a set. Finds sets by their look, so it misses some."""
    if layer_of(path) not in PURE | {"sim"}:
        return
    known = set_names(parse(source))
    for iterated in order_seen(parse(source)):
        if is_set(iterated, known):
            text = f"iterates the set {ast.unparse(iterated)}; sort it, or keep a dict[key, None]"
            yield Finding(path, iterated.lineno, text)


def order_seen(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions that are gone through one by one, where the outcome may depend on the order."""
    blind = {
        argument
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ORDER_BLIND
        for argument in node.args
    }
    for node in ast.walk(tree):
        match node:
            case ast.For() | ast.AsyncFor():
                yield node.iter
            case ast.ListComp() | ast.DictComp() | ast.GeneratorExp() if node not in blind:
                yield from (generator.iter for generator in node.generators)
            case ast.Call(ast.Name(name), [*arguments]) if name in ORDER_KEEPING:
                yield from (arguments if node not in blind else ())
            case ast.Call(ast.Attribute(_, "join" | "extend" | "fromkeys"), [first, *_]):
                yield first
            case ast.Starred(value) | ast.YieldFrom(value):
                yield value
            case _:
                pass


def is_set(node: ast.expr, known: set[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(ast.Name(name)) if name in SET_MAKERS:
            return True
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right):
            return is_set(left, known) or is_set(right, known)
        case ast.Name() | ast.Attribute():
            return ast.unparse(node) in known
        case _:
            return False


def set_names(tree: ast.Module) -> set[str]:
    """Names and attributes that hold a set wherever this module binds them: `self._x: set[int]`."""
    sets: set[str] = set()
    others: set[str] = set()
    declared: set[ast.AST] = set()  # targets that an annotation or a value has spoken for
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target, annotation):
                declared.add(target)
                (sets if means_set(annotation) else others).add(ast.unparse(target))
            case ast.Assign([target], value) if is_set(value, set()):
                declared.add(target)
                sets.add(ast.unparse(target))
            case ast.arg(name, annotation):
                (sets if annotation and means_set(annotation) else others).add(name)
            case _:
                pass
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and node not in declared:
            others.update([ast.unparse(node)] if isinstance(node.ctx, ast.Store) else [])
    return sets - others


def means_set(annotation: ast.expr) -> bool:
    return re.match(r"(set|frozenset)\b", ast.unparse(annotation)) is not None


def sizes(path: PurePosixPath, source: str) -> Iterator[Finding]:
    lines = len(source.splitlines())
    if lines > MODULE_LINES_MAX:
        text = f"{lines} lines, {MODULE_LINES_MAX} at most; split it by concern"
        yield Finding(path, MODULE_LINES_MAX + 1, text)
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                text = f"{node.name} has {length} lines, {FUNCTION_LINES_MAX} at most"
                yield Finding(path, node.lineno, text)


def banned_calls(path: PurePosixPath, source: str) -> Iterator[Finding]:
    """Nothing that runs what it reads."""
    for line, name in imports(path, source):
        if name.split(".")[0] in BANNED_MODULES or name == "yaml.load":
            yield Finding(path, line, f"{name} runs what it reads; use msgspec")
    for line, name in builtin_calls(source):
        if name in BANNED_CALLS:
            yield Finding(path, line, f"{name}() runs what it is given")
    for node in ast.walk(parse(source)):
        match node:
            case ast.Attribute(ast.Name("yaml"), "load"):
                yield Finding(path, node.lineno, "yaml.load runs what it reads")
            case _:
                pass


def file_names(path: PurePosixPath, source: str) -> Iterator[Finding]:
    if path.name in BANNED_FILE_NAMES:
        yield Finding(path, 1, "names no concern; call the module after what it is for")


def docstrings(path: PurePosixPath, source: str) -> Iterator[Finding]:
    if not (ast.get_docstring(parse(source)) or "").strip():
        yield Finding(path, 1, "has no docstring that says what the module is for")


def unfinished(path: PurePosixPath, source: str) -> Iterator[Finding]:
    for line, text in enumerate(source.splitlines(), start=1):
        if found := MARKERS.search(text):
            yield Finding(path, line, f"{found[0]}: finish it, or open an issue")


def machine_paths(path: PurePosixPath, source: str) -> Iterator[Finding]:
    for line, text in enumerate(source.splitlines(), start=1):
        if found := MACHINE_PATHS.search(text):
            yield Finding(path, line, f"{found[0]} is a place on somebody's machine")


def no_sleep(path: PurePosixPath, source: str) -> Iterator[Finding]:
    """A test that sleeps is slow, or wrong on a slow machine, or both."""
    for line, name in imports(path, source):
        if name == "time.sleep":
            yield Finding(path, line, "tests don't sleep; step the clock or wait for the event")
    for node in ast.walk(parse(source)):
        match node:
            case ast.Attribute(ast.Name("time"), "sleep"):
                text = "tests don't sleep; step the clock or wait for the event"
                yield Finding(path, node.lineno, text)
            case _:
                pass


def locked(path: PurePosixPath, source: str) -> Iterator[Finding]:
    """A lock file pins versions and hashes, and leaves the address to whoever installs."""
    entries = re.sub(r"\\\n", " ", source).splitlines()
    for text in entries:
        line = source[: source.index(text.split(" ")[0])].count("\n") + 1 if text else 0
        if "://" in text or re.match(r"\s*-", text):
            yield Finding(path, line, f"{text.split(' ')[0]}: an address or an option")
        elif text and not text.startswith("#") and not re.search(r"==.+--hash=sha256:", text):
            yield Finding(path, line, f"{text.split(' ')[0]}: no exact version with a hash")


PRODUCT_RULES: tuple[Rule, ...] = (
    layers,
    purity_of_imports,
    purity_of_calls,
    seeded_chance,
    sets_in_no_order,
    sizes,
    banned_calls,
    file_names,
    docstrings,
    unfinished,
)
TEST_RULES: tuple[Rule, ...] = (no_sleep,)
TEXT_RULES: tuple[Rule, ...] = (machine_paths,)
LOCK_RULES: tuple[Rule, ...] = (locked,)
