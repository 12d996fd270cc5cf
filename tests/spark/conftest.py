"""Three brokers and a Spark session for the whole folder; each test has streams of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.brokers import Brokers
from support.waiting import wait_until
from tidelog import blocking
from tidelog_spark.servers import SERVERS
from tidelog_spark.session import local_session


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    trio = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        trio.start()
        yield trio
    finally:
        trio.stop()


@pytest.fixture(scope="session")
def log(brokers: Brokers, spark: SparkSession) -> Iterator[blocking.Client]:
    # After the session: gRPC does not like a process to fork (for Java) while it runs.
    with blocking.connect(brokers.addresses) as client:
        wait_until(lambda: len(client.describe_cluster().brokers) == 3, "three brokers")
        yield client


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A task may fail once, and each failure costs the start of a Python process.
    with local_session("tests", master="local[2,2]") as session:
        yield session


_numbers = count(1)


@pytest.fixture
def stream(log: blocking.Client) -> Callable[..., str]:
    """Creates a stream and answers its name."""

    def create(partitions: int = 1) -> str:
        name = f"spark-{next(_numbers)}"
        log.create_stream(name, partitions=partitions, durability="page-cache")
        return name

    return create


@pytest.fixture
def read(spark: SparkSession, brokers: Brokers) -> Callable[..., DataFrame]:
    """A batch read of some streams."""

    def load(*streams: str, schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("tidelog").option(SERVERS, brokers.address).options(**options)
        if streams:
            reader = reader.option("subscribe", ",".join(streams))
        return (reader if schema is None else reader.schema(schema)).load()

    return load
