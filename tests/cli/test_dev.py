"""`tidelog dev` as a process: it starts everything, keeps data, and leaves nothing, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import COMMAND
from support.waiting import wait_until
from tidelog.cli.errors import Exit
from tidelog.cli.local.dev import PORT_STEP
from tidelog.cli.local.processes import free_ports

pytestmark = pytest.mark.slow

READY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 40.0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def spaced_ports() -> list[int]:
    """Three ports that are free now, and so are those 10 and 20 behind each of them."""
    while True:
        first = free_ports(1)[0]
        wanted = [first + number + step for step in (0, PORT_STEP, 2 * PORT_STEP) for number in range(3)]
        with contextlib.ExitStack() as stack:
            try:
                for port in wanted:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
        return [first, first + 1, first + 2]


class Dev:
    """One run of `tidelog dev`, ready."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        port, http_port, peer_port = spaced_ports()
        (nats_port,) = free_ports(1)
        self.process = subprocess.Popen(
            [*COMMAND, "dev", "--data", str(folder), "--port", str(port), "--http-port", str(http_port),
             "--peer-port", str(peer_port), "--nats-port", str(nats_port), "--output", "json", *words],
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
def start(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    """Starts `tidelog dev` on the same folder each time."""
    made: list[Dev] = []

    def make(*words: str) -> Dev:
        dev = Dev(tmp_path / "dev", *words)
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


@pytest.mark.long
def test_data_is_kept_between_runs(start: Callable[[], Dev]) -> None:
    first = start()
    first.call("stream", "create", "kept", "--subject", "kept.>")
    first.call("produce", "kept", "before")
    first.end(signal.SIGINT)

    second = start()

    assert second.call("consume", "kept") == "before\n"


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_one_broker_becomes_three_and_three_survive_the_death_of_one(
    start: Callable[..., Dev], offline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = start()
    assert offline("stream", "create", "before", "--server", alone.server).code == 0
    assert offline("produce", "before", "kept", "--server", alone.server).code == 0
    alone.end(signal.SIGINT)

    three = start("--brokers", "3")
    monkeypatch.setenv("TIDELOG_SERVER", three.server)
    assert offline("stream", "create", "orders", "--partitions", "3").code == 0
    for key in "abc":
        assert offline("produce", "orders", key, "--key", key).code == 0
    os.kill(three.said["processes"]["broker 1"], signal.SIGKILL)
    seen = [offline("consume", name).out for name in ("orders", "before")]
    wait_until(lambda: is_ready(three.said["brokers"][1]["http"]), "broker 1 is started again")
    verified = json.loads(offline("verify", "--cluster", "--output", "json").out)
    code, err = three.end(signal.SIGINT)

    assert [broker["broker_id"] for broker in three.said["brokers"]] == [0, 1, 2]
    assert [sorted(lines.split()) for lines in seen] == [["a", "b", "c"], ["kept"]]
    assert (verified["problems"], verified["replicas"]) == ([], 10)
    assert code == 0, err
    assert "broker 1 was killed (SIGKILL); it is started again" in err
    assert not children_of_folder(three.folder)
    answer = offline("dev", "--data", three.folder, "--brokers", "2")
    assert answer.code == Exit.USAGE
    assert "give --brokers 3" in answer.err


@pytest.mark.long
def test_a_broker_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    dev = Dev(tmp_path / "dev", "--brokers", "3")
    try:
        wait_until(lambda: pid_of_broker(tmp_path, 2), "broker 2 is being started")
        pid = pid_of_broker(tmp_path, 2)
        os.kill(pid, signal.SIGKILL)

        dev.wait_ready()
        code, err = dev.end(signal.SIGINT)

        assert code == 0, err
        assert "broker 2 was killed (SIGKILL); it is started again" in err
        assert dev.said["processes"]["broker 2"] != pid
    finally:
        dev.process.kill()
        dev.process.communicate()


def pid_of_broker(folder: Path, broker: int) -> int:
    """0: it is not started yet."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if str(folder / "dev" / f"broker-{broker}") in words and "run" in words:
                return int(path.parent.name)
    return 0


def is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"{http}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_ports_that_meet_are_refused(tmp_path: Path, offline: Any) -> None:
    port = spaced_ports()[0]

    answer = offline("dev", "--data", tmp_path, "--brokers", 2, "--port", port, "--http-port", port + 10)

    assert answer.code == Exit.USAGE
    assert f"both need port {port + 10}" in answer.err


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
