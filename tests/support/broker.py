"""A broker as its own process, as users run it: started on free ports, killed or stopped at will."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from support.hosts import HOST
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
    ) -> None:
        """`ports`: for clients and for HTTP; 0: any that is free, the same again after a restart."""
        self.data = folder / "data"
        self.log_path = folder / "broker.log"
        self._nats = nats
        self._flags = flags
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._host = host
        self._port, self._http_port = ports

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def http_port(self) -> int:
        return self._http_port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

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
            [sys.executable, "-m", "tidelog_broker", name, "--data-dir", str(self.data), *more],
            check=True, capture_output=True, text=True, env=self._env, timeout=60,
        )  # fmt: skip

    def start(self) -> None:
        """On the ports of the last run, if there was one; returns when it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts the process and does not wait."""
        arguments = [
            sys.executable, "-m", "tidelog_broker", "run", "--data-dir", str(self.data),
            "--listener", f"internal={self._host}:{self._port}", "--http", f"{self._host}:{self._http_port}",
            *(("--nats", self._nats) if self._nats else ()), *self._flags,
        ]  # fmt: skip
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log, env=self._env)

    def wait_ready(self) -> None:
        """Waits until the broker has said that it listens; raises with its log if it ends instead."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            text = self.log()
            host = re.escape(self._host)
            found = re.search(rf"listening\s+address={host}:(\d+)", _plain(text))
            http = re.search(rf"serving HTTP\s+address={host}:(\d+)", _plain(text))
            if found and http:
                self._port, self._http_port = int(found[1]), int(http[1])
                return
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"the broker ended with {self._process.returncode}:\n{text}")
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the broker did not start within {START_SECONDS_MAX:g} s:\n{self.log()}")

    def log(self) -> str:
        """What this run has logged."""
        data = self.log_path.read_bytes() if self.log_path.exists() else b""
        return data[self._log_start :].decode("utf-8", "replace")

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)

    def wait(self) -> int:
        """The exit code, once it has ended."""
        assert self._process is not None
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
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
