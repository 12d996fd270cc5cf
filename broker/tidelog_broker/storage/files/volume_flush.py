"""Decides whether one flush of the file system (syncfs) may replace the flushes of many files (DESIGN 4.3).

A flush of one file costs the disk a round trip and the file system a commit. A flush of the file system
costs little more, no matter how many files it writes. But it also writes the files of other programs
on that file system and reports their errors, and before Linux 5.17 it did not report all errors. So it is
used only where it is known to be safe: `judge` decides that once, at the start. Neighbours:
`os_files` makes the call, and `writing.flush_rounds` decides for each round whether it is quicker.
"""

from __future__ import annotations

import os
import re
from typing import Final, Literal, NamedTuple, TypeAlias

VOLUME_FLUSH_LOGS_MIN: Final = 8
"""Fewer logs with new bytes are flushed file by file. Measured: from four files on one call is quicker."""

KERNEL_MIN: Final = (5, 17)
"""From this version of Linux on, syncfs reports every error of the file system."""

FILE_SYSTEMS: Final = ("ext4", "xfs")
"""File systems whose syncfs is known to wait for data, sizes and names, and for the disk's own cache."""

Wish: TypeAlias = Literal["auto", "on", "off"]
"""The setting. auto: syncfs is used if the data directory is a mount of its own. on: the administrator
vouches for the rest of the mount. off: syncfs is never used."""


class Judgement(NamedTuple):
    safe: bool
    reason: str
    """Why syncfs is safe or not; shown in the broker's log and in /debug/state."""


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo."""

    device: tuple[int, int]
    """Major and minor number."""
    root: str
    """The folder of the file system that is mounted; `/`: the whole file system."""
    point: str
    type: str


def judge(wish: Wish, path: str, device: tuple[int, int], release: str, mountinfo: str) -> Judgement:
    """Decides whether syncfs is safe for the data directory at `path`, an absolute path without links.

    `device`: the device that holds the folder. `release`: the kernel's release. `mountinfo`: the text of
    /proc/self/mountinfo.
    """
    if wish == "off":
        return Judgement(False, "the setting syncfs is off")
    if _version(release) < KERNEL_MIN:
        return Judgement(False, f"the kernel is {release}, and syncfs reports all errors only from 5.17 on")
    mount = mount_of(path, mountinfo)
    if mount is None or mount.device != device:
        return Judgement(False, f"the mount point of {path} is not known")
    if mount.type not in FILE_SYSTEMS:
        return Judgement(False, f"the file system is {mount.type}, not {' or '.join(FILE_SYSTEMS)}")
    if wish == "on":
        return Judgement(True, f"the setting syncfs is on, on {mount.type} at {mount.point}")
    if mount.point != path:
        return Judgement(False, f"other programs may write to {mount.point}, which holds the data directory")
    if mount.root != "/":
        return Judgement(False, f"only the folder {mount.root} of a file system is mounted here")
    return Judgement(True, f"the data directory is a mount of its own, {mount.type}")


def judge_here(wish: Wish, path: str) -> Judgement:
    """Calls `judge` for a folder on this machine."""
    try:
        real = os.path.realpath(path)
        number = os.stat(real).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mountinfo = file.read()
    except OSError as error:
        return Judgement(False, f"the mount point of {path} is not known: {error.strerror}")
    return judge(wish, real, (os.major(number), os.minor(number)), os.uname().release, mountinfo)


def mount_of(path: str, mountinfo: str) -> Mount | None:
    """The mount at `path` or nearest above it; the last of several at one place covers the others."""
    found: Mount | None = None
    for line in mountinfo.splitlines():
        mount = _parse(line)
        if mount is None or not _is_below(path, mount.point):
            continue
        if found is None or len(mount.point) >= len(found.point):
            found = mount
    return found


def _parse(line: str) -> Mount | None:
    """Parses a line of mountinfo; None: the line does not have the form that proc(5) describes."""
    words = line.split(" ")
    if "-" not in words[6:]:
        return None
    rest = words[words.index("-", 6) + 1 :]
    major, _, minor = words[2].partition(":")
    if not rest or not (major.isdigit() and minor.isdigit()):
        return None
    return Mount((int(major), int(minor)), _unescaped(words[3]), _unescaped(words[4]), rest[0])


def _is_below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(f"{point}/")


def _unescaped(text: str) -> str:
    """Decodes blanks and backslashes, which mountinfo writes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _version(release: str) -> tuple[int, int]:
    """The major and minor version of a kernel's release; (0, 0) if it has another form."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found is not None else (0, 0)
