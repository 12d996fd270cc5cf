"""Control groups: all processes of a node are in the node's own group, so everything left in it may be
killed.

Supports both versions. In version 1 a group exists in several hierarchies, and a kubelet needs its own in
each of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
ENDS_SECONDS_MAX: Final = 10.0
LOOK_SECONDS: Final = 0.1

CPUSET: Final = ("cpuset.cpus", "cpuset.mems")
"""These files are empty in a new group of version 1, and no process can run in it before they are set."""

CPU_SHARES: Final = ("cpu.shares", "4096")
"""In version 1 a group competes with each thread outside of groups. With the default, 1024, a whole node
would weigh as much as one of these threads, and on a busy machine its pods would start minutes late."""


class ControlGroup:
    """The control groups of one node."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<ControlGroup {self.name}>"

    @property
    def machine_procs(self) -> Path:
        """The group of the node's own daemons: beside the pods, which the kubelet limits."""
        return _of_processes() / self.name / "machine" / "cgroup.procs"

    def make(self) -> None:
        for hierarchy in _hierarchies():
            folder = hierarchy / self.name
            if _is_unified(hierarchy):
                _pass_on_controllers(hierarchy)
            folder.mkdir(exist_ok=True)
            for name in CPUSET:
                if not _is_unified(hierarchy) and (hierarchy / name).exists():
                    (folder / name).write_text((hierarchy / name).read_text())
            name, shares = CPU_SHARES
            if (folder / name).exists():
                (folder / name).write_text(shares)
        self.machine_procs.parent.mkdir(exist_ok=True)

    def of_container(self, container_id: str) -> Path | None:
        """Returns the group of a container; None: this node has no container with this id."""
        root = _of_processes() / self.name
        return next((path for path in root.rglob(container_id) if path.is_dir()), None)

    def end(self) -> None:
        """Kills all processes in the group, and removes it."""
        deadline = time.monotonic() + ENDS_SECONDS_MAX
        while (members := self._members()) and time.monotonic() < deadline:
            for number in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(LOOK_SECONDS)
        for hierarchy in {*_hierarchies(), ROOT / "unified"}:
            self._remove(hierarchy / self.name, deadline)

    def _members(self) -> list[int]:
        found: list[int] = []
        for path in (_of_processes() / self.name).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found += map(int, path.read_text().split())
        return found

    def _remove(self, folder: Path, deadline: float) -> None:
        """A process that has just ended keeps its group for a moment."""
        while folder.exists():
            for one in sorted(folder.rglob("*"), key=lambda path: len(path.parts), reverse=True):
                if one.is_dir():
                    with contextlib.suppress(OSError):
                        one.rmdir()
            with contextlib.suppress(OSError):
                folder.rmdir()
            if not folder.exists() or time.monotonic() > deadline:
                return
            time.sleep(LOOK_SECONDS)


def _is_unified(hierarchy: Path) -> bool:
    return (hierarchy / "cgroup.subtree_control").exists()


def _hierarchies() -> list[Path]:
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(one[1]) for one in mounts if one[2] == "cgroup"]


def _of_processes() -> Path:
    """Returns the hierarchy in which a node's processes are found."""
    found = _hierarchies()
    return next((one for one in found if one.name == "pids"), found[0])


def _pass_on_controllers(hierarchy: Path) -> None:
    for controller in (hierarchy / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")
