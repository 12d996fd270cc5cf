"""The load program on this machine, outside of the pods' network: it reaches nodes, and survives them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.load.base import Load

ROOT: Final = Path(__file__).parents[2]
END_SECONDS_MAX: Final = 10.0


class LocalLoad(Load):
    """Load on the network of the nodes."""

    def __init__(self, nodes: Cluster, arguments: list[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidelog-load-")
        self._stop_file = Path(self._folder.name) / "stop"
        self._output = Path(self._folder.name) / "output"
        program = [sys.executable, "-m", "e2e.load.program", *arguments, "--stop-file", str(self._stop_file)]
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                nodes.plane.command(*program), cwd=ROOT, stdout=output, stderr=output
            )
        self.begun()

    def _said(self) -> Iterable[str]:
        return self._output.read_text().splitlines()

    def _stop(self) -> None:
        self._stop_file.touch()

    def _why_ended(self) -> str:
        code = self._process.poll()
        return "" if code is None else f"code {code}: {self._output.read_text()[-2000:]}"

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()
