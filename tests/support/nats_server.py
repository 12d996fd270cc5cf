"""A real NATS server for tests: started on a free loopback port, stopped by its own process id.

The program is the one that `tidelog dev` would run. How it is run differs: a test stops,
freezes and restarts its server, and lets it choose its own port.
"""

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from support.hosts import HOST
from tidelog.cli.local.nats_server import find_nats_server, is_serving
from tidelog.cli.local.processes import Child, ChildFailed, start

READY_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0


class NatsServer:
    """One nats-server process. ``restart`` keeps the port."""

    def __init__(self, config: str = "", *options: str) -> None:
        self._config = config
        """Lines of a nats-server configuration file."""
        self._options = options
        self._directory = tempfile.TemporaryDirectory(prefix="tidelog-nats-")
        self._child: Child | None = None
        self.port = -1
        """-1 until the first start: the server chooses a free one."""

    def __repr__(self) -> str:
        state = f"pid={self._child.process.pid}" if self._child else "stopped"
        return f"<NatsServer {HOST}:{self.port} {state}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._directory.cleanup()

    @property
    def url(self) -> str:
        """The address without credentials."""
        return f"nats://{HOST}:{self.port}"

    @property
    def directory(self) -> Path:
        """Where the server keeps its files; removed at the end."""
        return Path(self._directory.name)

    @property
    def log(self) -> str:
        """What the server wrote so far."""
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        assert self._child is None
        config = self.directory / "nats.conf"
        config.write_text(self._config)
        store = str(self.directory / "jetstream")
        address = ["-a", HOST, "-p", str(self.port), "--ports_file_dir", self._directory.name]
        command = [find_nats_server(), *address, "-c", str(config), "-sd", store, *self._options]
        self._child = start("NATS server", command, self.directory / "log")
        try:
            self._child.wait_ready(self._ready, READY_SECONDS_MAX)
        except ChildFailed as failure:
            self.kill()
            raise RuntimeError(f"{failure}\n{self.log}") from None

    def _ready(self) -> bool:
        assert self._child is not None
        if self.port < 0:
            ports = self.directory / f"nats-server_{self._child.process.pid}.ports"
            try:
                self.port = int(json.loads(ports.read_text())["nats"][0].rsplit(":", 1)[1])
            except (OSError, ValueError):
                return False
        return is_serving(HOST, self.port)

    def stop(self) -> None:
        """End the process in good order; without effect when it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process as a crash would."""
        self._end(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send the process a signal, such as SIGSTOP, SIGCONT or SIGUSR2 (lame duck mode)."""
        assert self._child is not None
        self._child.send_signal(number)
        if number == signal.SIGSTOP:
            # Its threads stop one by one; from here on none runs.
            os.waitid(os.P_PID, self._child.process.pid, os.WSTOPPED | os.WNOWAIT)

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()

    def _end(self, number: int) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        try:
            child.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
