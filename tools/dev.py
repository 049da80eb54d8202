"""The chores behind `./dev`: set up, check, test, simulate.

Runs on a bare Python before anything is installed, so it imports the standard library only. Every
chore first sees to it that `.venv` is complete and current, then becomes the tool it names.
"""

import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup-stamp"  # written last: a .venv without it is half-made
LOCK = ROOT / "requirements.lock"
PEERS_LOCK = ROOT / "requirements-peers.lock"
SPARK_LOCK = ROOT / "requirements-spark.lock"
SPARK_STAMP = VENV / "spark-stamp"  # the lock that Spark was installed from
PROJECT = ROOT / "pyproject.toml"
VENV_PARTS = ("venv", "ensurepip")  # what Debian splits off into a package of its own

# Rows of the fault catalogue that need no time of their own.
FAULT_TESTS = ("whole_disk", "two_lives", "junk", "readers", "skipping", "just_started")

EXIT_FAILED = 1
EXIT_CANNOT = 2
EXIT_INTERRUPTED = 130


class CannotRunError(Exception):
    """This machine or this call lacks something; the text says what to do about it."""


class Stamp(NamedTuple):
    """What a finished `.venv` was made from."""

    place: str  # which Python, and where the repository lies: another one needs another .venv
    inputs: str  # what was installed: a change needs an install on top


def main(arguments: Sequence[str]) -> int:
    name, *rest = arguments or ["help"]
    if name in {"help", "-h", "--help"}:
        print(help_text())
        return 0
    if name not in CHORES:
        print(f"dev: there is no '{name}'\n\n{help_text()}", file=sys.stderr)
        return EXIT_CANNOT
    try:
        return CHORES[name].run(rest)
    except CannotRunError as error:
        print(f"dev: {error}", file=sys.stderr)
        return EXIT_CANNOT
    except subprocess.CalledProcessError as error:
        print(f"{error.output or ''}\ndev: failed: {shlex.join(error.cmd)}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def help_text() -> str:
    width = 2 + max(map(len, CHORES))
    rows = "\n".join(f"  {name:<{width}}{chore.purpose}" for name, chore in CHORES.items())
    return (
        "usage: ./dev <chore> [arguments]\n\n"
        f"{rows}\n\n"
        "Each makes or refreshes .venv by itself. PYTHON=python3.13 ./dev ... picks another Python."
    )


# The chores.


def setup(arguments: Sequence[str]) -> int:
    refuse_arguments("setup", arguments)
    if not ensure_venv():
        say(".venv is complete and current")
    return 0


def check(arguments: Sequence[str]) -> int:
    refuse_arguments("check", arguments)
    ensure_venv()
    tools = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"])
    failed = []
    for tool in tools:
        say(" ".join(tool))
        if subprocess.run([VENV_PYTHON, "-m", *tool], cwd=ROOT, check=False).returncode != 0:
            failed.append(" ".join(tool))
    if failed:
        print(f"dev: failed: {', '.join(failed)}", file=sys.stderr)
    return EXIT_FAILED if failed else 0


def test(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    chosen = [argument for argument in arguments if not argument.startswith("-")]
    if not chosen or any("pipeline" in argument for argument in chosen):
        install_spark()
    os.chdir(ROOT)
    # Most of the time is spent waiting for real clusters: two files at a time.
    together = () if chosen else ("-n", "2", "--dist", "loadfile")
    become(VENV_PYTHON, "-m", "pytest", *together, *arguments)


def sim(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    become(VENV_PYTHON, "-m", "samcast.sim", *arguments)


def mutants(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    become(VENV_PYTHON, "-m", "samcast.sim.mutants", *arguments)


def costs(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    become(VENV_PYTHON, "-m", "samcast.sim.costs", *arguments)


def up(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    os.chdir(ROOT)
    become(VENV / "bin" / "samcast", "up", *arguments)


def bench(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    if "spark" in arguments or "jobs" in arguments:
        install_spark()
    # As an installed package is, so that a restart isn't measured with a compiler in it.
    run_quietly([str(VENV_PYTHON), "-m", "compileall", "-q", str(ROOT / "src")])
    become(VENV / "bin" / "samcast", "bench", *arguments)


def install_spark() -> None:
    """Large, so only what needs it has it installed."""
    wanted = SPARK_LOCK.read_bytes()
    if SPARK_STAMP.exists() and SPARK_STAMP.read_bytes() == wanted:
        return
    say("installing Spark (450 MB)")
    pip = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    run_quietly([*pip, "--require-hashes", "-r", str(SPARK_LOCK)])
    SPARK_STAMP.write_bytes(wanted)


def install_peers() -> None:
    """The Python clients of the systems that we are compared with."""
    pip = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    run_quietly([*pip, "--require-hashes", "-r", str(PEERS_LOCK)])


def peers(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    install_peers()
    run_quietly([str(VENV_PYTHON), "-m", "compileall", "-q", str(ROOT / "src")])
    usual = ("--against", "rabbitmq,nats,redis,etcd,pysyncobj")
    against = () if "--against" in arguments else usual
    become(VENV / "bin" / "samcast", "bench", *against, *arguments)


def faults(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    os.chdir(ROOT)
    os.environ.setdefault("SAMCAST_FAULT_SECONDS", "20")
    os.environ.setdefault("SAMCAST_STEPS_STRIDE", "1")
    files = sorted(str(path) for path in ROOT.glob("tests/real/test_*_faults.py"))
    files += [f"tests/real/test_{name}.py" for name in FAULT_TESTS] + ["tests/disk"]
    is_choice = any(Path(argument.split("::")[0]).exists() for argument in arguments)
    become(VENV_PYTHON, "-m", "pytest", "-v", *([] if is_choice else files), *arguments)


def multicast(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    if "--against" in arguments:
        install_peers()
    os.chdir(ROOT)
    namespace = ("--user", "--map-root-user", "--net", "--")
    module = ("-m", "tests.real.in_namespace")
    become(Path(shutil.which("unshare") or "/usr/bin/unshare"), *namespace, str(VENV_PYTHON),
           *module, *(arguments or ["rates"]))  # fmt: skip


def spark_run(module: str) -> Callable[[Sequence[str]], NoReturn]:
    """A long run of the tests that needs Spark."""

    def work(arguments: Sequence[str]) -> NoReturn:
        ensure_venv()
        install_spark()
        os.chdir(ROOT)
        become(VENV_PYTHON, "-m", f"tests.pipeline.{module}", *arguments)

    return work


def dashboard(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    become(VENV_PYTHON, str(ROOT / "tools" / "dashboard.py"), *arguments)


def samcast(arguments: Sequence[str]) -> NoReturn:
    ensure_venv()
    become(VENV / "bin" / "samcast", *arguments)


class Chore(NamedTuple):
    purpose: str
    run: Callable[[Sequence[str]], int]


CHORES = {
    "setup": Chore("make .venv and install what requirements.lock pins", setup),
    "up": Chore("run a cluster of three nodes here, with a live demo", up),
    "check": Chore("lint, formatting and types: ruff check, ruff format --check, mypy", check),
    "test": Chore("run the tests; arguments go to pytest", test),
    "sim": Chore("run simulated clusters under faults; arguments go to samcast.sim", sim),
    "mutants": Chore("break the safety rules one by one; the simulator must notice", mutants),
    "costs": Chore("measure what a run costs each role, and how that grows", costs),
    "multicast": Chore(
        "in a namespace: rates, sizes, members, stopped, parity; tests, faults; `bench ...`",
        multicast,
    ),
    "spark-kills": Chore(
        "kill Spark and nodes under a stream, 20 times; count rows", spark_run("killing")
    ),
    "archive-kills": Chore(
        "kill the archiving job and nodes, 10 times; compare what is read back",
        spark_run("archive_killing"),
    ),
    "fold-scale": Chore(
        "fold 20 million messages on servers, here and on Spark; compare the states",
        spark_run("fold_scale"),
    ),
    "audit-failovers": Chore(
        "send 10 million messages across 5 fail-overs, and audit them",
        spark_run("audit_failovers"),
    ),
    "dashboard": Chore("draw the dashboard from a real Prometheus into a file", dashboard),
    "faults": Chore("faults on real processes, 20 s each; arguments go to pytest", faults),
    "bench": Chore("measure a fresh cluster of three nodes on this machine", bench),
    "peers": Chore("the same work on RabbitMQ, NATS, Redis, etcd and PySyncObj", peers),
    "samcast": Chore("run the samcast command line", samcast),
}


def refuse_arguments(chore: str, arguments: Sequence[str]) -> None:
    if arguments:
        raise CannotRunError(f"'{chore}' takes no arguments, but got {shlex.join(arguments)}")


def become(program: Path, *arguments: str) -> NoReturn:
    """Replace this process, so that exit codes and signals need no passing on."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [str(program), *arguments])


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


# The environment.


def ensure_venv() -> bool:
    """Make `.venv` whole and current; say whether anything had to be done."""
    wanted = stamp_wanted()
    if stamp_found() == wanted:
        return False
    with only_one_setup():
        found = stamp_found()  # Another one may have finished while this one waited.
        if found == wanted:
            return False
        if found is None or found.place != wanted.place:
            make_venv()
        STAMP.unlink(missing_ok=True)  # From here on an interruption leaves a half-made .venv.
        install()
        write_stamp(wanted)
    return True


def stamp_wanted() -> Stamp:
    digest = hashlib.sha256()
    for path in (LOCK, PROJECT):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    place = f"{sys.implementation.cache_tag} {ROOT}"
    return Stamp(place, digest.hexdigest())


def stamp_found() -> Stamp | None:
    try:
        lines = STAMP.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return Stamp(*lines) if len(lines) == len(Stamp._fields) and VENV_PYTHON.exists() else None


def write_stamp(stamp: Stamp) -> None:
    draft = STAMP.with_suffix(".new")
    draft.write_text("\n".join(stamp) + "\n", encoding="utf-8")
    draft.replace(STAMP)


@contextmanager
def only_one_setup() -> Iterator[None]:
    """Hold off other `./dev` calls in this repository; the kernel lets go if we are killed."""
    directory = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def make_venv() -> None:
    python = base_python()
    ensure_venv_parts(python)
    say(f"making .venv with Python {'.'.join(map(str, sys.version_info[:3]))}")
    if VENV.is_symlink():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)
    run_quietly([python, "-m", "venv", str(VENV)])


def install() -> None:
    pip = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    say("installing the pinned packages")
    run_quietly([*pip, "--require-hashes", "-r", str(LOCK)])
    say("installing samcast itself, editable")
    run_quietly([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])


def run_quietly(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run it; its output shows only if it fails (`main` prints it)."""
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=None if environment is None else {**os.environ, **environment},
    )


def base_python() -> str:
    """The Python outside any activated environment: the one we run in may be about to go."""
    return str(getattr(sys, "_base_executable", sys.executable))


# Debian keeps ensurepip in a package of its own.


def ensure_venv_parts(python: str) -> None:
    if venv_parts_present():
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    package = f"python{version}-venv"
    if shutil.which("apt-get") is None:
        raise CannotRunError(
            f"{python} lacks {' or '.join(VENV_PARTS)}, so it can't make .venv; install them with "
            "your system's package manager, or name another Python: PYTHON=... ./dev setup"
        )
    if os.geteuid() != 0:
        raise CannotRunError(
            f"{python} lacks {' or '.join(VENV_PARTS)}, so it can't make .venv; run this, then "
            f"./dev again:\n  sudo sh -c 'apt-get update && apt-get install -y {package}'"
        )
    say(f"installing {package} with apt-get")
    with suppress(subprocess.CalledProcessError):  # Without fresh lists the old ones may do.
        run_quietly(["apt-get", "update"])
    run_quietly(["apt-get", "install", "-y", package], {"DEBIAN_FRONTEND": "noninteractive"})
    importlib.invalidate_caches()
    if not venv_parts_present():
        raise CannotRunError(
            f"{package} is installed, but {python} still lacks {' or '.join(VENV_PARTS)}: it isn't "
            "the system's own Python. Name one that has them: PYTHON=/usr/bin/python3 ./dev setup"
        )


def venv_parts_present() -> bool:
    return all(importlib.util.find_spec(part) is not None for part in VENV_PARTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
