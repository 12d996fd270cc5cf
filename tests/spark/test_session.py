"""What `local_session` sets up for the Python processes of Spark."""

from __future__ import annotations

import os

import pyspark
from pyspark.sql import SparkSession


def test_tasks_import_the_installed_pyspark_which_is_compiled(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()

    assert found == [pyspark.__file__]
    assert "SPARK_HOME" not in os.environ, "the environment of the process is as it was"
