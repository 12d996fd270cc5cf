"""The Spark session of a job, and how the job reaches its object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tidelog.errors import InvalidRequest
from tidelog_spark.jobs.config import Reading
from tidelog_spark.lake.stores import ObjectStore
from tidelog_spark.session import local_session
from tidelog_spark.source import register

CREDENTIALS_FILE: Final = "AWS_SHARED_CREDENTIALS_FILE"
"""Where the AWS libraries, in Python and in Java, look for a file with credentials."""


def hadoop_url(path: str) -> str:
    """The path as Hadoop's file systems call it."""
    return "s3a://" + path.removeprefix("s3://") if path.startswith("s3://") else path


@contextmanager
def session(job: Reading, name: str, master: str | None) -> Iterator[SparkSession]:
    """The session of spark-submit, or one on this machine, with the job's settings."""
    store = job.object_store
    settings = dict(job.spark_conf)
    if store.credentials_file is not None:
        if not os.access(store.credentials_file, os.R_OK):
            raise InvalidRequest(f"objectStore.credentialsFile {store.credentials_file} cannot be read")
        os.environ[CREDENTIALS_FILE] = store.credentials_file
        settings.setdefault(f"spark.executorEnv.{CREDENTIALS_FILE}", store.credentials_file)
    settings |= {name: value for name, value in s3a_settings(job).items() if name not in settings}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        chosen = master or settings.pop("spark.master", "local[*]")
        with (
            local_session(name, master=chosen, settings=settings, log_level="off") as spark,
            _told_while_spark_runs(),
        ):
            yield spark
        return
    builder = SparkSession.builder.appName(name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    register(spark)
    try:
        with _told_while_spark_runs():
            yield spark
    finally:
        spark.stop()


class SparkFailed(Exception):
    """An error of Spark as text."""


@contextmanager
def _told_while_spark_runs() -> Iterator[None]:
    # These exceptions ask Java for their text, and Java ends with the session.
    try:
        yield
    except (CapturedException, Py4JJavaError) as error:
        raise SparkFailed(str(error)) from None


def s3a_settings(job: Reading) -> dict[str, str]:
    """Hadoop's settings for a checkpoint in the store; empty without one."""
    if not job.checkpoint.startswith(("s3://", "s3a://")):
        return {}
    store = job.object_store
    found = {}
    if store.endpoint is not None:
        found["spark.hadoop.fs.s3a.endpoint"] = store.endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
        secure = str(store.endpoint.startswith("https://")).lower()
        found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = secure
    if store.region is not None:
        found["spark.hadoop.fs.s3a.endpoint.region"] = store.region
    if store.credentials_file is not None:
        provider = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
        found["spark.hadoop.fs.s3a.aws.credentials.provider"] = provider
    return found


def store_of(job: Reading) -> ObjectStore:
    return ObjectStore(job.object_store.endpoint, job.object_store.region)
