"""`tidelog demo` as a process: what it shows, and that it leaves nothing behind, however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from cli.conftest import COMMAND
from cli.test_dev import children_of_folder
from support.waiting import wait_until
from tidelog.cli.demo.host_metrics import Sampler, host_token
from tidelog.cli.demo.stream import run_async
from tidelog.cli.errors import Exit
from tidelog.cli.local.processes import Signals

DEMO_SECONDS_MAX = 200.0


class Demo:
    """A run whose temporary files all go to one folder."""

    def __init__(self, folder: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*COMMAND, "demo", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(folder), **(env or {})},
        )  # fmt: skip

    @property
    def shown(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def read_until(self, text: str) -> None:
        for line in self.shown:
            if text in line:
                return
        raise AssertionError(f"{text!r} was never shown")

    def left(self) -> list[str]:
        """Processes and files that the demo has left."""
        return [*children_of_folder(self.folder), *(str(path) for path in self.folder.iterdir())]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tmp"
    made.mkdir()
    return made


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    made: list[Demo] = []
    yield made
    for demo in made:
        demo.process.kill()
        demo.process.communicate()


@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_whole_demo_records_aggregates_and_cleans_up(folder: Path, demos: list[Demo]) -> None:
    env = {"GRPC_ENABLE_FORK_SUPPORT": "true"}
    demo = Demo(folder, "--seconds", "1.5", "--output", "json", env=env)
    demos.append(demo)

    out, err = demo.process.communicate(timeout=DEMO_SECONDS_MAX)

    assert demo.process.returncode == 0, err
    found = json.loads(out)
    assert found["published"] == found["records"] == sum(row["samples"] for row in found["summary"])
    assert found["failover"]["lost"] == 0
    assert "fork" not in err
    assert found["failover"]["stored"] == found["failover"]["acknowledged"]
    assert found["failover"]["leader"] != found["failover"]["killed"]
    assert {"cpu", "memory"} <= {row["kind"] for row in found["summary"]}
    assert "Spark reads the stream" in err
    assert "┤" in err
    assert demo.left() == []


@pytest.mark.parametrize(
    "moment",
    [
        "NATS server",
        pytest.param("broker ", marks=pytest.mark.long),
        pytest.param("Spark starts", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_leaves_nothing_at_any_step(moment: str, folder: Path, demos: list[Demo]) -> None:
    demo = Demo(folder, "--seconds", "1", env={"PYTHONUNBUFFERED": "1"})
    demos.append(demo)
    demo.read_until(moment)

    demo.process.send_signal(signal.SIGINT)
    _, err = demo.process.communicate(timeout=60)

    assert demo.process.returncode == Exit.INTERRUPTED, err
    assert "Traceback" not in err
    wait_until(lambda: not demo.left(), "everything is gone")


def test_a_second_ctrl_c_does_not_keep_it_from_cleaning_up(folder: Path, demos: list[Demo]) -> None:
    demo = Demo(folder, env={"PYTHONUNBUFFERED": "1"})
    demos.append(demo)
    demo.read_until("broker ")

    demo.process.send_signal(signal.SIGINT)
    demo.read_until("stopping")
    demo.process.send_signal(signal.SIGINT)
    demo.process.communicate(timeout=60)

    assert demo.process.returncode == Exit.INTERRUPTED
    wait_until(lambda: not demo.left(), "everything is gone")


def test_a_nats_server_that_does_not_start_fails_the_demo_and_leaves_nothing(
    folder: Path, demos: list[Demo]
) -> None:
    demo = Demo(folder, env={"TIDELOG_NATS_SERVER": "/bin/false"})
    demos.append(demo)

    _, err = demo.process.communicate(timeout=60)

    assert demo.process.returncode == Exit.FAILED
    assert err.splitlines() == ["tidelog: the NATS server ended with code 1: it wrote nothing"]
    assert demo.left() == []


def test_the_sampler_measures_this_machine() -> None:
    messages = Sampler().sample()

    kinds = {message.kind for message in messages}
    assert {"cpu", "memory"} <= kinds
    assert all(message.body["value"] >= 0 for message in messages)
    assert len([message for message in messages if message.kind == "cpu"]) == os.cpu_count()


def test_the_host_is_one_token_of_a_subject() -> None:
    assert "." not in host_token()
    assert host_token()


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_stop_at_any_moment_of_the_event_loop_leaves_no_loop_open(moment: str) -> None:
    signals = Signals()
    ended: list[str] = []

    async def work() -> None:
        if moment == "during":
            signal.raise_signal(signal.SIGTERM)
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("work")

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop = super().new_event_loop()
            if moment == "before":
                signal.raise_signal(signal.SIGTERM)
            close = loop.close

            def closing() -> None:
                if moment == "after":
                    signal.raise_signal(signal.SIGTERM)
                close()
                ended.append("loop")

            loop.close = closing  # type: ignore[method-assign]
            return loop

    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    try:
        with signals.caught(), pytest.raises(KeyboardInterrupt):
            run_async(signals, work)
    finally:
        asyncio.set_event_loop_policy(before)
        asyncio.set_event_loop(None)

    assert ended == (["work", "loop"] if moment == "during" else ["loop"])
