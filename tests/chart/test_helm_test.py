"""The script of `helm test`, with a real broker: it succeeds, and fails if records differ."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker import BrokerProcess
from support.kube.chart import rendered

pytestmark = pytest.mark.slow

UID = "7c5b1a0e-0000-4000-8000-000000000000"
REAL = f'"{sys.executable}" -m tidelog.cli'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as made:
        yield made


class Script:
    """Runs the script of the test's pod, with another `tidelog`."""

    def __init__(self, programs: Path, folder: Path, server: str) -> None:
        (pod,) = [one for one in rendered(programs) if one["kind"] == "Pod"]
        (container,) = pod["spec"]["containers"]
        self._words = [*container["command"], *container["args"]]
        # As in Kubernetes: `$(POD_UID)` comes from the pod.
        given = {one["name"]: one.get("value", UID).replace("$(POD_UID)", UID) for one in container["env"]}
        self._environment = {
            **os.environ,
            **given,
            "TIDELOG_SERVER": server,
            "PATH": f"{folder}:{os.environ['PATH']}",
        }
        self._program = folder / "tidelog"
        self.stream = given["STREAM"]

    def run(self, tidelog: str = f'{REAL} "$@"') -> subprocess.CompletedProcess[str]:
        """`tidelog`: its replacement, in shell."""
        self._program.write_text(f"#!/bin/sh\n{tidelog}\n")
        self._program.chmod(0o755)
        return subprocess.run(
            self._words, env=self._environment, capture_output=True, text=True, check=False, timeout=60
        )

    def streams(self) -> str:
        words = [sys.executable, "-m", "tidelog.cli", "stream", "list"]
        return subprocess.run(words, env=self._environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def script(programs: Path, broker: BrokerProcess, tmp_path: Path) -> Script:
    return Script(programs, tmp_path, broker.address)


@pytest.mark.long
def test_records_are_read_as_written_and_the_stream_is_deleted(script: Script) -> None:
    done = script.run()

    assert done.returncode == 0, done.stderr
    assert "one\ntwo\nthree\nfour\nfive\n" in done.stdout
    assert script.stream not in script.streams()


@pytest.mark.long
@pytest.mark.parametrize(
    "tidelog",
    [
        # Records are in another order; a command fails after its work.
        f'if [ $1 = consume ]; then {REAL} "$@" | sort; else {REAL} "$@"; fi',
        f'if [ $1 = consume ]; then {REAL} "$@"; exit 1; else {REAL} "$@"; fi',
    ],
)
def test_the_test_fails_on_any_error_and_leaves_no_stream(script: Script, tidelog: str) -> None:
    assert script.run(tidelog).returncode != 0
    assert script.stream not in script.streams()
