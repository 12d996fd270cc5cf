"""`tidelog dev` as a process: it starts both, keeps data, and leaves nothing, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import COMMAND
from support.waiting import wait_until
from tidelog.cli._errors import Exit
from tidelog.cli._processes import free_ports

READY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 40.0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Dev:
    """One run of `tidelog dev`, ready."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, http_port, nats_port = free_ports(3)
        self.process = subprocess.Popen(
            [*COMMAND, "dev", "--data", str(folder), "--port", str(port), "--http-port", str(http_port),
             "--nats-port", str(nats_port), "--output", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.server = f"127.0.0.1:{port}"
        self.said: dict[str, Any] = {}

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        text = b""
        while line := self.process.stdout.readline():
            text += line
            if line == b"}\n":
                self.said = json.loads(text)
                return
        assert self.process.stderr is not None
        raise AssertionError(self.process.stderr.read().decode())

    @property
    def pids(self) -> list[int]:
        return list(self.said["processes"].values())

    def end(self, number: int) -> tuple[int, str]:
        """Sends a signal; the exit code, and what was said on standard error."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=END_SECONDS_MAX)
        return self.process.returncode, err.decode()

    def call(self, *words: str) -> str:
        done = subprocess.run(
            [*COMMAND, *words, "--server", self.server],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Dev]]:
    """Starts `tidelog dev` on the same folder each time."""
    made: list[Dev] = []

    def make() -> Dev:
        dev = Dev(tmp_path / "dev")
        made.append(dev)
        dev.wait_ready()
        return dev

    yield make
    for dev in made:
        if dev.process.poll() is None:
            dev.process.kill()
        dev.process.communicate()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_stop_signal_stops_both_in_order_and_leaves_a_clean_mark(
    number: int, start: Callable[[], Dev]
) -> None:
    dev = start()

    code, err = dev.end(number)

    assert code == 0, err
    assert "stopped; the data is kept in" in err
    assert not any(alive(pid) for pid in dev.pids)
    assert (dev.folder / "broker" / "checkpoints" / "clean-stop").exists()


def test_data_is_kept_between_runs(start: Callable[[], Dev]) -> None:
    first = start()
    first.call("stream", "create", "kept", "--subject", "kept.>")
    first.call("produce", "kept", "before")
    first.end(signal.SIGINT)

    second = start()

    assert second.call("consume", "kept") == "before\n"


def test_nothing_outlives_a_killed_dev_and_the_next_run_recovers(start: Callable[[], Dev]) -> None:
    first = start()
    first.call("stream", "create", "kept")
    first.call("produce", "kept", "before")

    first.end(signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in first.pids), "the children end")

    assert start().call("consume", "kept") == "before\n"


def test_a_second_dev_on_the_same_folder_is_refused(start: Callable[[], Dev], offline: Any) -> None:
    dev = start()

    answer = offline("dev", "--data", dev.folder)

    assert answer.code == Exit.ENVIRONMENT
    assert f"process {dev.process.pid}" in answer.err


@pytest.mark.parametrize("name", ["broker", "NATS server"])
def test_when_a_child_dies_the_other_is_stopped_and_the_reason_said(
    name: str, start: Callable[[], Dev]
) -> None:
    dev = start()

    os.kill(dev.said["processes"][name], signal.SIGKILL)
    _, err = dev.process.communicate(timeout=END_SECONDS_MAX)

    assert dev.process.returncode == Exit.FAILED
    assert err.decode().strip().endswith(f"the {name} was killed (SIGKILL)")
    assert not any(alive(pid) for pid in dev.pids)


def test_ctrl_c_while_starting_leaves_nothing(tmp_path: Path) -> None:
    dev = Dev(tmp_path / "dev")
    try:
        wait_until(lambda: (tmp_path / "dev" / "nats.log").exists(), "the NATS server is being started")

        code, err = dev.end(signal.SIGINT)

        assert code in (0, Exit.INTERRUPTED), err
        assert "Traceback" not in err
        wait_until(lambda: not children_of_folder(tmp_path), "everything ends")
    finally:
        dev.process.kill()
        dev.process.communicate()


def children_of_folder(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found
