"""What `local_session` sets up for the Python processes of Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tidelog_spark.session import _home_without_archive


def test_tasks_import_the_installed_pyspark_which_is_compiled(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()

    assert found == [pyspark.__file__]
    assert "SPARK_HOME" not in os.environ, "the environment of the process is as it was"


@pytest.mark.parametrize(
    "given",
    [{"PYSPARK_PYTHON": "/opt/other/bin/python3"}, {"SPARK_HOME": "/opt/spark"}],
    ids=lambda one: next(iter(one)),
)
def test_another_python_and_the_users_spark_home_keep_the_archive(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    with _home_without_archive(tmp_path):
        assert os.environ.get("SPARK_HOME") == given.get("SPARK_HOME")
    assert os.environ.get("SPARK_HOME") == given.get("SPARK_HOME")
