"""A broker, a NATS server and a stopped broker's data for the tests of commands, and ways to call them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from support.broker import BrokerProcess
from support.nats_server import NatsServer
from tidelog import blocking
from tidelog.cli.app import run

COMMAND = [sys.executable, "-m", "tidelog.cli"]
CALL_SECONDS_MAX = 60

BATCHES = 8
"""Of the stream in a stopped data directory; each holds a record."""


class Answer(NamedTuple):
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str
    raw: bytes = b""


class Cluster(NamedTuple):
    """A broker that records what the NATS server gets."""

    server: str
    nats_port: int
    data: Path


Call = Callable[..., Answer]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests: each takes a stream of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    with NatsServer() as nats, BrokerProcess(folder, nats=nats.url) as broker:
        yield Cluster(broker.address, nats.port, broker.data)


@pytest.fixture
def stream(cluster: Cluster, tidelog: Call, request: pytest.FixtureRequest) -> str:
    """The name of a new stream of one partition."""
    name = f"s{abs(hash(request.node.nodeid))}"
    assert tidelog("stream", "create", name).code == 0
    return name


@pytest.fixture
def tidelog(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls a command in this process, against the cluster."""
    monkeypatch.setenv("TIDELOG_SERVER", cluster.server)
    return lambda *words: call(monkeypatch, words)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls a command in this process, without a cluster."""
    return lambda *words: call(monkeypatch, words)


def call(monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]) -> Answer:
    """One command line, with standard output and error caught."""
    raw, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setenv("COLUMNS", "200")
        # In a thread of its own: the commands run event loops, and plugins keep one in this thread.
        with ThreadPoolExecutor(1) as thread:
            code = thread.submit(run, [str(word) for word in words]).result(CALL_SECONDS_MAX)
        out.flush()
    return Answer(int(code), raw.getvalue().decode("utf-8", "replace"), err.getvalue(), raw.getvalue())


@pytest.fixture
def piped(cluster: Cluster) -> Call:
    """Calls a command in a process of its own, with `given` as its standard input."""

    def call_process(*words: object, given: bytes = b"") -> Answer:
        done = subprocess.run(
            [*COMMAND, *(str(word) for word in words)],
            input=given, capture_output=True, env={**os.environ, "TIDELOG_SERVER": cluster.server},
            timeout=CALL_SECONDS_MAX, check=False,
        )  # fmt: skip
        return Answer(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode(), done.stdout
        )

    return call_process


class Stopped(NamedTuple):
    """A data directory that no broker uses: one stream of small segments."""

    data: Path
    partition: Path

    @property
    def segments(self) -> list[Path]:
        return sorted(self.partition.glob("*.log"))


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """After a clean stop; to be copied, not to be changed."""
    folder = tmp_path_factory.mktemp("stopped")
    with BrokerProcess(folder) as broker:
        server = ("--server", broker.address)
        words = ["stream", "create", "orders", "--segment-bytes", "4KiB", "--batch-bytes-max", "4KiB"]
        subprocess.run([*COMMAND, *words, *server], check=True, capture_output=True, timeout=60)
        with blocking.connect(broker.address) as client, client.producer("orders") as producer:
            for number in range(BATCHES):
                value, key = f"{number} " + "x" * 500, f"k{number}"
                producer.send(value.encode(), key=key.encode(), headers={"h": b"1"})
    (partition,) = (folder / "data" / "streams").glob("orders~*/0")
    return Stopped(folder / "data", partition)


@pytest.fixture
def stopped(clean: Stopped, tmp_path: Path) -> Stopped:
    """A copy, to be damaged."""
    data = tmp_path / "data"
    shutil.copytree(clean.data, data)
    return Stopped(data, data / clean.partition.relative_to(clean.data))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)
