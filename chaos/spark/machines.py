"""Three brokers and a standalone Spark cluster on this machine, all as processes of their own."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

import psutil
import pyspark

from tidelog import blocking
from tidelog.cli.local.local_cluster import Addresses, LocalCluster
from tidelog.cli.local.processes import Child, Signals, free_ports, start
from tidelog.cli.local.waiting import holds_within
from tidelog_spark.java import ensure_java

HOST: Final = "127.0.0.1"
BROKERS: Final = 3
WORKERS: Final = 2
WORKER_CORES: Final = 4
"""Twice what an executor takes: the executor of a killed driver may still be there."""

READY_SECONDS_MAX: Final = 300.0
SPARK_HOME: Final = Path(pyspark.__file__).parent


class Machines:
    """Starts the processes of a run; `stop` leaves none."""

    def __init__(self, folder: Path, signals: Signals) -> None:
        self.folder = folder
        # On an address of this run alone: a broker that is killed finds its ports free when it comes back.
        number = os.getpid()
        host = f"127.64.{(number >> 7) % 128}.{1 + number % 128}"
        ports = free_ports(1 + 3 * BROKERS, host)
        self.brokers = LocalCluster(folder, Addresses.of(host, ports), signals)
        self.workers: list[Child] = []
        self._master: Child | None = None
        self.master_url = ""

    @property
    def servers(self) -> list[str]:
        return self.brokers.addresses.servers

    @property
    def environment(self) -> dict[str, str]:
        """Of all programs of Spark, the drivers too."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            **os.environ,
            "JAVA_HOME": str(ensure_java()),
            "SPARK_HOME": str(SPARK_HOME),
            # Without the version, Spark's programs look for a build of Spark.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_DIRS": str(temporary),
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(temporary),
        }

    def start(self) -> None:
        """Returns when all serve."""
        self.brokers.start_nats()
        self.brokers.launch_brokers()
        self._start_spark()
        for broker in range(BROKERS):
            self.brokers.wait_ready(broker)
        with blocking.connect(self.servers) as log:
            if not holds_within(lambda: len(log.describe_cluster().brokers) == BROKERS, READY_SECONDS_MAX):
                raise TimeoutError(f"three brokers did not register within {READY_SECONDS_MAX:g} s")

    def _start_spark(self) -> None:
        options = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        self._master = self._java("master", "master.Master", options)
        self._master.wait_ready(lambda: self._address() is not None, READY_SECONDS_MAX)
        self.master_url = self._address() or ""
        for number in range(WORKERS):
            options = ["--host", f"127.0.0.{2 + number}", "--webui-port", "0", "--memory", "2g"]
            options += ["--cores", str(WORKER_CORES), "-d", str(self.folder / f"worker-{number}")]
            self.workers.append(self._java(f"worker {number}", "worker.Worker", [*options, self.master_url]))
        self._master.wait_ready(self._complete, READY_SECONDS_MAX)

    def _java(self, name: str, module: str, options: list[str]) -> Child:
        # A master gives an application up after ten executors that died; here they die by intention.
        command = [str(ensure_java() / "bin" / "java"), "-Xmx256m", "-Dspark.deploy.maxExecutorRetries=-1"]
        command += ["-cp", str(SPARK_HOME / "jars" / "*"), f"org.apache.spark.deploy.{module}", *options]
        return start(name, command, self.folder / f"{name.replace(' ', '-')}.log", env=self.environment)

    def _output(self) -> str:
        return self._master.output() if self._master is not None else ""

    def _address(self) -> str | None:
        found = re.search(r"Starting Spark master at (spark://\S+)", self._output())
        return found[1] if found else None

    def _complete(self) -> bool:
        return self._output().count("Registering worker") == WORKERS

    def stop(self) -> None:
        """Ends all processes, also those that killed processes have left behind."""
        left = [one for worker in self.workers for one in _below(worker.process.pid)]
        for child in [*self.workers, *([self._master] if self._master else []), *self.brokers.children]:
            child.kill()
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=READY_SECONDS_MAX)


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
