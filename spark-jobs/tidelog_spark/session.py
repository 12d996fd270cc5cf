"""A Spark session on this machine that leaves nothing behind: for jobs, the demo and tests.

All files that Spark writes besides results (shuffle files, warehouse, log settings) are in one temporary
folder, which is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog_spark.failures import sentence_of
from tidelog_spark.java import NO_PERFORMANCE_FILE, ensure_java
from tidelog_spark.source import register

MASTER_DEFAULT: Final = "local[2]"

SOCKET_FOLDER_CHARACTERS_MAX: Final = 61
"""Spark refuses a longer path, because the path of a Unix domain socket has a limit."""

_JAVA_OPTIONS: Final = (
    NO_PERFORMANCE_FILE,
    # The highest throughput; its pauses do not matter here.
    "-XX:+UseParallelGC",
    # Spark checks for null before it gets a value, and asks for rows of the batch only; Arrow need not check
    # again.
    "-Darrow.enable_null_check_for_get=false",
    "-Darrow.enable_unsafe_memory_access=true",
)

_LOG_SETTINGS: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
# Spark lowers the level for shells unless this logger has one; ours is no shell.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex{{short}}
"""


@contextmanager
def local_session(
    name: str = "tidelog",
    *,
    master: str = MASTER_DEFAULT,
    settings: Mapping[str, str] | None = None,
    log_level: str = "error",
) -> Iterator[SparkSession]:
    """A session with `format("tidelog")`, stopped and cleaned up at the end.

    `settings` are Spark settings (``spark.sql.shuffle.partitions``, …); they replace the defaults here.
    `log_level` is that of Spark's messages on standard error (off, error, warn, …). Raises
    `JavaMissing`.
    """
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", NO_PERFORMANCE_FILE)
    folder = Path(tempfile.mkdtemp(prefix="tidelog-spark-"))
    try:
        spark = _build(name, master, folder, settings or {}, log_level)
        try:
            register(spark)
            yield spark
        except (PySparkException, Py4JJavaError) as error:
            # The text of the error is in the Java process, which ends here.
            error.add_note(sentence_of(error))
            raise
        finally:
            stop(spark)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(name: str, master: str, folder: Path, settings: Mapping[str, str], log_level: str) -> SparkSession:
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS.format(level=log_level))
    (folder / "tmp").mkdir()
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={log_settings.as_uri()} -Djava.io.tmpdir={folder / 'tmp'} "
            f"-Dderby.system.home={folder} {' '.join(_JAVA_OPTIONS)}"
        ),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        # Timestamps are instants; the time zone is for showing them and for days and hours.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if len(str(folder)) <= SOCKET_FOLDER_CHARACTERS_MAX:
        # Rows come from Python processes; over TCP this takes more CPU time.
        options |= {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(folder),
        }
    options |= settings
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in options.items():
        builder = builder.config(key, value)
    with _home_without_archive(folder):
        return builder.getOrCreate()


@contextmanager
def _home_without_archive(folder: Path) -> Iterator[None]:
    """Lets Java start with a SPARK_HOME without pyspark.zip, if this Python has PySpark from pip, and is the
    Python that Spark starts.

    The archive comes first in the path of each Python process that Spark starts, and has no compiled modules:
    each process takes half a second of CPU time to compile PySpark. Without the archive, the process imports
    the installed PySpark, which is the same and compiled. Another interpreter may lack PySpark, or have
    another version, so it keeps the archive. A SPARK_HOME in the environment stays in use.
    """
    installed = Path(pyspark.__file__).parent
    is_ours = os.environ["PYSPARK_PYTHON"] == sys.executable
    if "SPARK_HOME" in os.environ or not is_ours or not (installed / "jars").is_dir():
        yield
        return
    home = folder / "home"
    home.mkdir()
    for part in ("bin", "conf", "jars"):
        if (installed / part).exists():
            (home / part).symlink_to(installed / part)
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def stop(spark: SparkSession) -> None:
    """Ends the session and its Java process, so that the next session has a new process."""
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        gateway.shutdown()
        if process is not None:
            # The process ends when its standard input is closed.
            process.stdin.close()
            process.wait(30)
