"""The operator as a process, as in its pod: it can be killed or stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from support.waiting import wait_until

STOP_SECONDS_MAX = 20.0
TESTS = Path(__file__).parents[2]


class OperatorProcess:
    """`python -m tidelog_operator run`; a context manager."""

    def __init__(self, folder: Path, kubeconfig: Path, *flags: str) -> None:
        self.log_path = folder / "operator.log"
        self._kubeconfig = kubeconfig
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> OperatorProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()

    def start(self) -> None:
        """Starts it and waits until it is the leader."""
        self.launch()
        wait_until(self.leads, "the operator leads")

    def launch(self) -> None:
        """Starts it without waiting."""
        self._began = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._launch()

    def restart_if_watch_lost(self) -> None:
        """Does what the kubelet does for an operator that ended because kopf misses a resource; fails if it
        ended otherwise."""
        if not self.running:
            assert "reason='kopf does not watch" in self.log(), self.log()
            self.launch()

    def leads(self) -> bool:
        """Whether it has become the leader; raises if it ended."""
        assert self.running, f"the operator ended: {self.log()}"
        return b"became leader" in self.log_path.read_bytes()[self._began :]

    def _launch(self, *module: str, **environment: str) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *(module or ("tidelog_operator",)), "run",
                 "--kubeconfig", str(self._kubeconfig), "--lease-namespace", "default",
                 "--metrics", "127.0.0.1:0", *self._flags],
                stdout=log, stderr=log, env={**os.environ, **environment},
            )  # fmt: skip

    def get(self, path: str) -> str:
        """Returns a page that it serves."""
        words = self.log_path.read_text("utf-8", "replace")
        *_, address = re.findall(r"serving /metrics.* address=(\S+)", words)
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            body: bytes = answer.read()
            return body.decode()

    def log(self) -> str:
        """The last words since it was started."""
        return self.log_path.read_bytes()[self._began :].decode("utf-8", "replace")[-4000:]

    def stop(self) -> int:
        """Ends it with SIGTERM and returns its exit code; fails with its log if it does not end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the operator did not stop: {self.log()}") from None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)


class DyingOperator(OperatorProcess):
    """An operator that is killed after one action, before it sees the result; entering it starts another
    one."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        # The Lease of a killed operator expires after a while; these operators do not wait for one another.
        super().__init__(folder, kubeconfig, "--identity", "dying")

    def start(self) -> None:
        """Starts it and returns at once."""
        last = self._deaths()[-1:] or [("", "")]
        variables = {"PYTHONPATH": str(TESTS), "TIDELOG_TESTS_LAST_ACTION": last[0][1]}
        self._launch("support.kube.dying_operator", "1", **variables)

    def last_actions(self) -> list[str]:
        """The action after which each of them was killed."""
        return [kind for kind, _ in self._deaths()]

    def _deaths(self) -> list[tuple[str, str]]:
        if not self.log_path.exists():
            return []
        text = self.log_path.read_text("utf-8", "replace")
        return re.findall(r"^killed after (\w+): (.*)$", text, re.MULTILINE)


class StubbornOperator(OperatorProcess):
    """An operator that acts as the leader whatever the Lease says, and can be suspended at any point."""

    def launch(self) -> None:
        self._began = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._launch("support.kube.stubborn_operator", PYTHONPATH=str(TESTS))

    def hold(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
