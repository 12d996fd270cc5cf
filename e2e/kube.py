"""kubectl and helm, used as people use them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

COMMAND_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.25


class Refused(Exception):
    """A command failed; the message is its output."""


class Kube:
    """One cluster. Objects are in one namespace unless another one is given."""

    def __init__(self, namespace: str, prefix: Sequence[str] = ()) -> None:
        """`prefix`: arguments before each command, by which it reaches the cluster."""
        self.namespace = namespace
        self._prefix = list(prefix)

    def __repr__(self) -> str:
        return f"<Kube {self.namespace}>"

    def run(self, *command: str, given: str | None = None, seconds: float = COMMAND_SECONDS_MAX) -> str:
        """Runs a command and returns its output. Raises `Refused`."""
        try:
            done = subprocess.run(
                [*self._prefix, *command],
                input=given,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                env=os.environ,
            )
        except subprocess.TimeoutExpired as error:
            raise Refused(f"{' '.join(command)} took longer than {seconds:g} s") from error
        if done.returncode:
            raise Refused(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def kubectl(self, *words: str, given: str | None = None, seconds: float = COMMAND_SECONDS_MAX) -> str:
        return self.run("kubectl", "--namespace", self.namespace, *words, given=given, seconds=seconds)

    def helm(self, *words: str, seconds: float = 600.0) -> str:
        return self.run("helm", "--namespace", self.namespace, *words, seconds=seconds)

    def apply(self, *objects: dict[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename", "-", given=json.dumps(listed))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Returns the object; None: it does not exist."""
        text = self.kubectl("get", kind, name, "--output", "json", "--ignore-not-found")
        found: dict[str, Any] | None = json.loads(text) if text else None
        return found

    def list(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        words = ["--selector", labels] if labels else []
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "--output", "json", *words))[
            "items"
        ]
        return found

    def exec(self, pod: str, *command: str, seconds: float = COMMAND_SECONDS_MAX) -> str:
        return self.kubectl("exec", pod, "--", *command, seconds=seconds)


def condition(found: dict[str, Any] | None, kind: str) -> str:
    """Returns the status of a condition; empty if there is none, or if it is of an older generation."""
    if found is None:
        return ""
    generation = found["metadata"].get("generation")
    for one in (found.get("status") or {}).get("conditions") or []:
        if one["type"] == kind and one.get("observedGeneration", generation) == generation:
            return str(one["status"])
    return ""


def wait_until(lack: Callable[[], str], seconds: float, look_seconds: float = LOOK_SECONDS) -> float:
    """Waits until `lack` returns nothing, and returns how long that took. Raises `AssertionError` with what
    is still missing. `look_seconds`: between two looks."""
    began = time.monotonic()
    while said := _tried(lack):
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds:g} s: {said}")
        time.sleep(look_seconds)
    return time.monotonic() - began


def _tried(lack: Callable[[], str]) -> str:
    """Calls `lack`. An error counts as missing: the API server may be unavailable for a moment."""
    try:
        return lack()
    except Refused as error:
        return str(error)
