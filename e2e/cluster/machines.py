"""Machines: a machine is a process that only holds a network namespace and a mount namespace.

In a machine some folders of the host are replaced by folders of its own, because their names are compiled
into Kubernetes. When its last process ends, its mounts and interfaces are removed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.cluster.processes import Processes

START_SECONDS_MAX: Final = 10.0

HOLD: Final = """
mount --make-rshared /
while [ $# -gt 0 ]; do mount --bind "$1" "$2"; shift 2; done
ip link set lo up
exec sleep infinity
"""
"""A kubelet must propagate mounts to containers, so mounts are shared within the machine."""


class Machine:
    """A machine by name, running or not."""

    def __init__(self, name: str, processes: Processes) -> None:
        self.name = name
        self._processes = processes

    def __repr__(self) -> str:
        return f"<Machine {self.name}>"

    @property
    def pid(self) -> int:
        return self._processes.pid(self.name)

    def start(self, folders: Mapping[Path, Path]) -> None:
        """Starts the machine. `folders`: maps folders of the host to their replacements. Both are created if
        they are missing."""
        words: list[str | Path] = []
        for place, own in folders.items():
            place.mkdir(parents=True, exist_ok=True)
            own.mkdir(parents=True, exist_ok=True)
            words += [own, place]
        unshare = ["unshare", "--net", "--mount", "--propagation", "slave"]
        self._processes.start(self.name, [*unshare, "sh", "-ec", HOLD, "hold", *words])
        self._processes.wait_until(
            self._holds, f"{self.name} holds its namespaces", self.name, START_SECONDS_MAX
        )

    def _holds(self) -> bool:
        return Path(f"/proc/{self.pid}/comm").read_text().strip() == "sleep"

    def inside(self, *command: str | Path, mounts: bool = True) -> list[str]:
        """Returns the command that runs `command` in the machine. (`ip netns exec` would hide control groups
        with /sys.)"""
        which = ["--net", "--mount"] if mounts else ["--net"]
        return ["nsenter", "--target", str(self.pid), *which, "--", *map(str, command)]

    def run(self, *command: str | Path) -> str:
        """Runs a command and returns its output. Raises `CalledProcessError`."""
        done = subprocess.run(self.inside(*command), check=True, capture_output=True, text=True)
        return done.stdout

    def start_inside(self, name: str, command: Sequence[str | Path], procs: Path | None = None) -> None:
        """Starts a process. `procs`: the control group that it enters first."""
        words = list(command)
        if procs is not None:
            words = ["sh", "-c", 'echo $$ >"$0"; exec "$@"', procs, *words]
        self._processes.start(name, self.inside(*words))
