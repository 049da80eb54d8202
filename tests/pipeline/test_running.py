"""PySpark files are run as they are, on a machine with Java and on one without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import samcast
from samcast.errors import ConfigError, RefusedError
from samcast.pipeline.java import FLAG, ensure_java, make_home
from samcast.pipeline.running import in_plain_words, prepare
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.conftest import HAS_SPARK

PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
stream = spark.readStream.format("samcast").option("group", "orders").load()
stream.writeStream.queryName("copy").format("parquet").option("path", sys.argv[1]).option(
    "checkpointLocation", sys.argv[1] + ".checkpoint"
).trigger(availableNow=True).start()
"""


def test_without_java_and_without_one_from_pypi_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="Spark needs Java 17 or newer"):
        ensure_java(tmp_path)


def test_a_java_of_its_own_leaves_out_what_it_lacks(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "lib").mkdir()
    java = runtime / "bin" / "java"
    java.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    java.chmod(0o755)
    home = make_home(runtime, tmp_path / "cache")
    assert make_home(runtime, tmp_path / "cache") == home
    said = subprocess.run(
        [home / "bin" / "java", "-a b", FLAG, "", "last"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.splitlines() == ["<-a b>", "<>", "<last>"]
    assert (home / "lib").resolve() == runtime / "lib"


@pytest.mark.req("PIP-08")
@pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")
@pytest.mark.parametrize("has_java", [True, False])
def test_a_file_is_run_and_its_progress_is_shown(
    cluster: LocalCluster, tmp_path: Path, has_java: bool
) -> None:
    with samcast.connect(cluster.address) as client:
        client.group("orders").send_many([b"%d" % i for i in range(1000)])
        client.group("orders").flush(30)
    program, target = tmp_path / "copy.py", tmp_path / "out"
    program.write_text(PROGRAM)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    if not has_java:
        environment.pop("JAVA_HOME", None)
        (tmp_path / "bin").mkdir()
        for found in Path("/bin").iterdir():
            if "java" not in found.name:
                (tmp_path / "bin" / found.name).symlink_to(found)
        environment["PATH"] = str(tmp_path / "bin")
    command = [sys.executable, "-m", "samcast.cli.main", "pipeline", "run", str(program)]
    command += ["--cluster", cluster.address, "--master", "local[1]", str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert list(target.glob("*.parquet")), done.stderr
    assert "copy: batch 0, 1000 rows" in done.stderr
    assert "up to 1000" in done.stderr


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "samcast.cli.main", "pipeline", "run", "nothing.py"]
    done = subprocess.run(
        [*command, "--cluster", "127.0.0.1:1"], capture_output=True, text=True, check=False,
        cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "nothing.py: no such file" in done.stderr


def test_what_a_task_says_is_told_without_what_spark_says_about_it() -> None:
    trace = (
        "An exception was thrown from the Python worker.\n  File x.py, line 7\n"
        "samcast.errors.RefusedError: node 2 takes no state: less than 1024 MiB are free here\n"
        " SQLSTATE: 38000"
    )
    told = in_plain_words(RuntimeError(trace))
    assert isinstance(told, RefusedError)
    assert str(told) == "node 2 takes no state: less than 1024 MiB are free here"
    other = in_plain_words(RuntimeError("[CANNOT_CONNECT] no master\nat java.lang"))
    assert str(other) == "Spark: [CANNOT_CONNECT] no master"


@pytest.mark.parametrize("setting", ["driver.memory=1g", "spark.driver.memory", "--conf x=y"])
def test_a_setting_that_is_none_of_sparks_is_told(setting: str) -> None:
    with pytest.raises(ConfigError, match="is no setting of Spark"):
        prepare("local[1]", "", [setting])
