"""The benchmark's end of a Spark session: starts the process, asks for work, ends it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.harness.processes import ROOT, STOP_SECONDS_MAX, Failed, python
from bench.spark.request import Request
from tidelog.cli.local.processes import start
from tidelog.cli.local.waiting import holds_within

ANSWER_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.02


class Session:
    """A Spark session in a process of its own, up until `close`."""

    def __init__(self, folder: Path, jars: str = "") -> None:
        """Starts the session; `jars` are further jars, separated by commas."""
        self._folder = TemporaryDirectory(prefix="spark-", dir=folder)
        own = Path(self._folder.name)
        self._child = start(
            "Spark session", python("bench.spark.session", "--jars", jars), own / "log",
            stdin=subprocess.PIPE, stdout=own / "answers", folder=ROOT,
        )  # fmt: skip
        self._answers = (own / "answers").open("rb")
        self._begun = b""
        """The part of an answer that has no end yet."""
        try:
            self.started: dict[str, Any] = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, request: Request) -> dict[str, Any]:
        """The session's answer; raises `Failed`."""
        stdin = self._child.process.stdin
        assert stdin is not None
        stdin.write(request.line().encode() + b"\n")
        stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        def arrived() -> bool:
            self._begun += self._answers.read()
            return self._begun.endswith(b"\n") or not self._child.running

        in_time = holds_within(arrived, ANSWER_SECONDS_MAX, pause=LOOK_SECONDS)
        line, self._begun = self._begun, b""
        if not in_time:
            raise Failed(f"Spark did not answer within {ANSWER_SECONDS_MAX:g} s")
        if not line.endswith(b"\n"):
            raise Failed(f"the Spark session has ended:\n{self._child.output()[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise Failed(f"{found['error'][:500]}\n{self._child.output()[-1000:]}")
        return found

    def close(self) -> None:
        """Ends the session, by force if it must be."""
        assert self._child.process.stdin is not None
        self._child.process.stdin.close()
        try:
            self._child.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._answers.close()
        self._folder.cleanup()
