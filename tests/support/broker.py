"""A broker as its own process, as users run it: started on free ports, killed or stopped at will."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from support.hosts import HOST
from tidelog.cli.local.processes import Child, ChildFailed, python_module, start
from tidelog_broker.__main__ import run as tidelog_broker_command

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0


class BrokerProcess:
    """`python -m tidelog_broker run` on a data directory of its own; a context manager."""

    def __init__(
        self,
        folder: Path,
        *,
        nats: str = "",
        flags: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        host: str = HOST,
        ports: tuple[int, int] = (0, 0),
        tls: str = "off",
        http_tls: str = "off",
    ) -> None:
        """`flags` may be changed before a start. `ports`: for clients and for HTTP; 0: any that is free, the
        same again after a restart. `tls`, `http_tls`: of the listeners for clients and HTTP."""
        self.data = folder / "data"
        self.log_path = folder / "broker.log"
        self._nats = nats
        self.flags = flags
        self._env = {**os.environ, **(env or {})}
        self._started: Child | None = None
        self._host = host
        self._tls = tls
        self._http_tls = http_tls
        self._port, self._http_port = ports

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def http_port(self) -> int:
        return self._http_port

    @property
    def _child(self) -> Child:
        assert self._started is not None, "the broker was not started"
        return self._started

    @property
    def pid(self) -> int:
        return self._child.process.pid

    @property
    def running(self) -> bool:
        return self._started is not None and self._started.running

    def __enter__(self) -> BrokerProcess:
        if not self.data.exists():
            # In this process: another would take longer to start than the rest of many a test.
            assert tidelog_broker_command(["format", "--data-dir", str(self.data)]) == 0
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()

    def command(self, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Runs `tidelog-broker NAME` on the data directory; raises if it fails."""
        return subprocess.run(
            python_module("tidelog_broker", name, "--data-dir", str(self.data), *more),
            check=True, capture_output=True, text=True, env=self._env, timeout=60,
        )  # fmt: skip

    def start(self) -> None:
        """On the ports of the last run, if there was one; returns when it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts the process and does not wait."""
        command = python_module(
            "tidelog_broker", "run", "--data-dir", str(self.data),
            "--listener", f"internal={self._host}:{self._port}?tls={self._tls}",
            "--http", f"{self._host}:{self._http_port}?tls={self._http_tls}",
            *(("--nats", self._nats) if self._nats else ()), *self.flags,
        )  # fmt: skip
        self._started = start("broker", command, self.log_path, env=self._env)

    def wait_ready(self) -> None:
        """Waits until the broker has logged that it listens; raises with its log if it ends instead."""
        try:
            self._child.wait_ready(self._listens, START_SECONDS_MAX)
        except ChildFailed as failure:
            self.kill()
            raise AssertionError(f"{failure}\n{self.log()}") from None

    def _listens(self) -> bool:
        text, host = _plain(self.log()), re.escape(self._host)
        found = re.search(rf"listening\s+address={host}:(\d+)", text)
        http = re.search(rf"serving HTTP\s+address={host}:(\d+)", text)
        if found is None or http is None:
            return False
        self._port, self._http_port = int(found[1]), int(http[1])
        return True

    def listener(self, name: str) -> str:
        """The address of another listener, as the broker has logged it."""
        found = re.search(rf"listening\s+address=(\S+)\s+listener={name}\b", _plain(self.log()))
        assert found is not None, self.log()
        return found[1]

    def log(self) -> str:
        """What this run has logged."""
        return "" if self._started is None else self._started.output()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self._child.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()

    def wait(self) -> int:
        """The exit code, once it has ended."""
        try:
            return self._child.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the broker did not end within {STOP_SECONDS_MAX:g} s:\n{self.log()}"
            ) from None

    def get(self, path: str) -> str:
        """An HTTP page of the broker."""
        with urllib.request.urlopen(f"http://{self._host}:{self._http_port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def state(self) -> Any:
        return json.loads(self.get("/debug/state"))


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
