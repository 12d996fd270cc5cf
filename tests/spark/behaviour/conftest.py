"""The streams of the table of behaviour, and the two ways to run a case (`engines`)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.behaviour import streams
from spark.behaviour.engines import ByCalls, Engine, InSpark
from spark.brokers import Brokers
from tidelog import blocking


@pytest.fixture(scope="session")
def servers(brokers: Brokers, log: blocking.Client) -> Brokers:
    """The brokers, which have the streams of the table."""
    streams.make(log)
    return brokers


@pytest.fixture(params=["calls", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> Engine:
    return InSpark(spark) if request.param == "spark" else ByCalls()
