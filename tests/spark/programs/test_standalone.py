"""A standalone Spark cluster: a master and two workers in processes of their own, on two addresses.

The executors get the package in both ways that docs/spark.md names: with pip, and by ``--py-files``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from support.broker import BrokerProcess
from support.waiting import wait_until
from tidelog import blocking
from tidelog_spark.java import ensure_java

ROOT = Path(__file__).parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
SOURCES = ("proto/tidelog_proto", "client/tidelog", "spark-jobs/tidelog_spark")

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession, functions as F
import tidelog_spark

server, checkpoint, late = sys.argv[1:]
spark = SparkSession.builder.appName("standalone").getOrCreate()
tidelog_spark.register(spark)
tidelog = {"tidelog.bootstrap.servers": server}

@F.udf("string")
def straggling(value):
    task = TaskContext.get()
    if late == "late" and task.attemptNumber() == 0 and task.partitionId() == 1 and value.endswith("7"):
        time.sleep(0.4)
    if late == "killed" and value.endswith("77") and kills_first():
        java = [one for one in psutil.Process().parents() if one.name() == "java"]
        os.kill(java[0].pid, signal.SIGKILL)
    return value

def kills_first():
    try:
        Path(checkpoint + ".killed").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

rows = spark.range(4000).selectExpr("cast(id as string) as value").repartition(4)
rows.write.format("tidelog").options(**tidelog).option("stream", "numbers").mode("append").save()
source = {**tidelog, "subscribe": "numbers", "startingOffsets": "earliest"}
print("READ", spark.read.format("tidelog").options(**source).load().count())
values = spark.readStream.format("tidelog").options(**source, maxOffsetsPerTrigger="2000").load()
values = values.select(straggling(F.col("value").cast("string")).alias("value"))
query = values.writeStream.format("tidelog").options(**tidelog).option("stream", "copies")
query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
print("STREAMED", sum(one.numInputRows for one in query.recentProgress))
"""


def spark_environment() -> dict[str, str]:
    """The environment of Spark's programs; without the version of Scala they look for a build of Spark."""
    places = {"JAVA_HOME": str(ensure_java()), "SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}
    return {**os.environ, **places}


@contextmanager
def java_process(name: str, arguments: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    java = str(ensure_java() / "bin" / "java")
    command = [java, "-Xmx512m", "-cp", str(SPARK_HOME / "jars" / "*"), f"org.apache.spark.deploy.{name}"]
    with log.open("w") as output, subprocess.Popen(
        [*command, *arguments], stdout=output, stderr=subprocess.STDOUT, env=environment
    ) as process:  # fmt: skip
        try:
            yield
        finally:
            process.terminate()


def address_of_master(log: Path) -> str | None:
    found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
    return found[1] if found else None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the master; each worker has one core."""
    folder = tmp_path_factory.mktemp("standalone")
    environment = {**spark_environment(), "SPARK_LOCAL_DIRS": str(folder)}
    with ExitStack() as stack:
        log = folder / "master.log"
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(java_process("master.Master", arguments, log, environment))
        wait_until(lambda: address_of_master(log) is not None, "the master is there")
        master = address_of_master(log)
        assert master is not None
        for number in (2, 3):
            arguments = ["--host", f"127.0.0.{number}", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            arguments += ["-d", str(folder / f"worker-{number}"), master]
            worker_log = folder / f"worker-{number}.log"
            stack.enter_context(java_process("worker.Worker", arguments, worker_log, environment))
        wait_until(lambda: log.read_text().count("Registering worker") == 2, "both workers are there")
        yield master


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The packages in one file for ``--py-files``, with entries for folders: a package without an
    ``__init__.py`` is not found without them."""
    for source in SOURCES:
        folder = ROOT / source
        shutil.copytree(folder, tmp_path / "packages" / folder.name)
    return Path(shutil.make_archive(str(tmp_path / "tidelog"), "zip", tmp_path / "packages"))


@pytest.fixture
def python_without_tidelog(tmp_path: Path) -> str:
    """A Python that has what the packages need, but not the packages: they are installed by a .pth file,
    which Python reads only in its own folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / "bare" / "lib" / version / "site-packages"
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = tmp_path / "bare" / "bin" / "python"
    found = subprocess.run([python, "-c", "import pyspark; import tidelog"], capture_output=True, text=True)
    assert "No module named 'tidelog'" in found.stderr
    return str(python)


def submit(
    master: str, python: str, folder: Path, server: str, *, late: str = "", options: tuple[str, ...] = ()
) -> str:
    """Runs the program with spark-submit; its output."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [str(SPARK_HOME / "bin" / "spark-submit")]
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.speculation.quantile": "0.5",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    environment = {**spark_environment(), "PYSPARK_PYTHON": python}
    if "--py-files" in options:
        environment["PYTHONPATH"] = options[-1]
    done = subprocess.run(
        [*command, "--master", master, *options, str(program), server, str(folder / "checkpoint"), late],
        capture_output=True, text=True, timeout=300, env=environment, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    output: str = done.stdout + done.stderr
    return output


def check_streams(log: blocking.Client) -> None:
    expected = sorted(b"%d" % number for number in range(4000))
    for stream in ("numbers", "copies"):
        assert sorted(record.value or b"" for record in log.reader(stream, follow=False)) == expected


@pytest.mark.parametrize("way", ["pip", "py-files"])
def test_executors_in_other_processes_read_write_and_stream(
    cluster: str, tmp_path: Path, way: str, request: pytest.FixtureRequest
) -> None:
    options: tuple[str, ...] = ()
    python = sys.executable
    if way == "py-files":
        python = request.getfixturevalue("python_without_tidelog")
        options = ("--py-files", str(request.getfixturevalue("packed")))
    with BrokerProcess(tmp_path / "broker") as broker, blocking.connect(broker.address) as log:
        log.create_stream("numbers", partitions=3)
        log.create_stream("copies", partitions=2)

        output = submit(cluster, python, tmp_path, broker.address, options=options)

        assert "READ 4000" in output
        assert "STREAMED 4000" in output
        check_streams(log)


def test_speculative_attempts_write_no_row_twice(cluster: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker, blocking.connect(broker.address) as log:
        log.create_stream("numbers", partitions=3)
        log.create_stream("copies", partitions=2)

        output = submit(cluster, sys.executable, tmp_path, broker.address, late="late")

        assert "STREAMED 4000" in output
        assert "speculative" in output
        check_streams(log)


def test_an_executor_that_is_killed_in_a_task_costs_no_row(cluster: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker, blocking.connect(broker.address) as log:
        log.create_stream("numbers", partitions=3)
        log.create_stream("copies", partitions=2)

        output = submit(cluster, sys.executable, tmp_path, broker.address, late="killed")

        assert (tmp_path / "checkpoint.killed").exists()
        assert "Lost executor" in output
        assert "STREAMED 4000" in output
        check_streams(log)
