"""A Kafka broker that is its own controller, and the command for Kafka's Java tools.

`cluster` has three nodes.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bench.harness.build import BUILD_SECONDS_MAX, built
from bench.harness.model import Missing
from bench.harness.processes import Server, accepts, free_port, run

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
LOAD = HERE / "Load.java"
LOG4J = HERE / "log4j2.properties"

JAVA_MAJOR_MIN = 17
HEAP = "1G"
REQUEST_SECONDS_MAX = 20.0
MIN_ISR = 2


@cache
def version() -> str:
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text())
    assert found is not None
    return found[1]


@cache
def java() -> str:
    """A Java of version 17 or newer; raises `Missing`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise Missing("there is no java")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    major = re.search(r'version "(\d+)', said)
    if major is None or int(major[1]) < JAVA_MAJOR_MIN:
        raise Missing(f"{found} is older than Java {JAVA_MAJOR_MIN}")
    return found


@cache
def jars() -> Path:
    """The folder with Kafka's jars and our class, fetched and compiled once; raises `Missing`."""
    javac = _tool("javac")
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Missing(
            "the Python package confluent-kafka, which makes the topics, is not installed "
            "(pip install 'tidelog[bench]')"
        )
    java()

    def build(folder: Path) -> None:
        fetch(POM, folder)
        run([javac, "-cp", f"{folder}/*", "-d", str(folder), str(LOAD)])

    _tool("mvn")
    return built("kafka", [POM, LOAD], build)


def fetch(pom: Path, folder: Path) -> None:
    """Fetches the jars that a project depends on; raises `Missing`."""
    run(
        [
            _tool("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}",
        ],
        seconds_max=BUILD_SECONDS_MAX,
    )  # fmt: skip


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"there is no {name}; Kafka needs Maven and a Java development kit, 17 or newer")
    return found


def java_command(*arguments: object, heap: str = HEAP) -> list[str]:
    """The command that runs a class with Kafka's jars, with the options of Kafka's own scripts."""
    libs = jars()
    return [
        java(), f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
        f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{libs}/*:{libs}",
        *(str(argument) for argument in arguments),
    ]  # fmt: skip


class Topics(ABC):
    """Makes topics: one broker, or several as one cluster."""

    replicas = 1

    @property
    @abstractmethod
    def address(self) -> str:
        """host:port of all brokers, comma-separated."""

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """The process ids of the brokers."""

    def create(self, topic: str, *, fsync: bool, partitions: int = 1) -> None:
        """Makes a topic. `fsync`: flush each batch (log.flush.interval.messages=1)."""
        self.create_all([topic], fsync=fsync, partitions=partitions)

    def create_all(self, topics: list[str], *, fsync: bool, partitions: int = 1) -> None:
        """Makes topics in one request, each with so many partitions."""
        config = {"file.delete.delay.ms": "0"}
        if fsync:
            config["flush.messages"] = "1"
        if self.replicas > 1:
            config["min.insync.replicas"] = str(MIN_ISR)
        wanted = [
            _admin_api().NewTopic(
                topic, num_partitions=partitions, replication_factor=self.replicas, config=config
            )
            for topic in topics
        ]  # fmt: skip
        # The client must outlive its futures.
        admin = self.admin()
        for future in admin.create_topics(wanted).values():
            future.result(REQUEST_SECONDS_MAX)

    def delete(self, topic: str) -> None:
        admin = self.admin()
        for future in admin.delete_topics([topic]).values():
            future.result(REQUEST_SECONDS_MAX)

    def admin(self) -> Any:
        return _admin_api().AdminClient({"bootstrap.servers": self.address, "log_level": 2})


def new_cluster_id() -> str:
    found = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    # Kafka's option parser would take a leading dash for an option.
    return f"A{found[1:]}" if found.startswith("-") else found


class Kafka(Server, Topics):
    """One KRaft process, with defaults except where loopback and a single broker need other values."""

    def __init__(
        self,
        folder: Path,
        *,
        node: int = 1,
        controllers: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """`controllers`: ports of all nodes of the cluster; None: this node is alone."""
        super().__init__("kafka", folder)
        self._node = node
        self._controllers = controllers or {node: free_port()}
        self._cluster_id = cluster_id or new_cluster_id()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    def start(self) -> None:
        """Starts it, on the port of the last start if there was one, and waits until it is ready."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Starts it and does not wait: no node of a cluster serves before most nodes run."""
        config = self.folder / "server.properties"
        if not config.exists():
            self.port = free_port()
            config.write_text(self._config())
            run(
                java_command(
                    "kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", config,
                    heap="256M",
                )
            )  # fmt: skip
        self.spawn(java_command("kafka.Kafka", config), lambda: accepts(self.port))

    def _config(self) -> str:
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._controllers.items())
        controller = self._controllers[self._node]
        copies = len(self._controllers)
        lines = {
            "process.roles": "broker,controller",
            "node.id": self._node,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": f"{self.folder}/logs",
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min(copies, MIN_ISR),
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "delete.topic.enable": "true",
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


def _admin_api() -> Any:
    """Imports the module late: the package is optional, and loads a large library."""
    return importlib.import_module("confluent_kafka.admin")
