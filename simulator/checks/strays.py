"""Checks of stray folders, which belong to no partition of the broker, and of removed folders (I17, I18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks.truth import Knowledge, Setup, require
from tidelog_broker.storage.folder.identity import Held, read_held, read_identity

if TYPE_CHECKING:
    from simulator.disk import FakeDisk
    from simulator.node import Node, Replica


class StrayChecks(Knowledge):
    """Checks that no broker changes a stray folder, or removes a folder that it must keep."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._strays: dict[int, dict[str, dict[str, bytes]]] = {}
        """By broker and folder: its files when it became a stray (2d)."""
        self._held: dict[tuple[int, str], Held | None] = {}
        """By broker and folder: the replica of the folder at that time (R16)."""

    def stray(self, broker: int, disk: FakeDisk, folder: str) -> None:
        """From now on a folder belongs to no replica of the broker in the image (2d)."""
        known, holds = self._strays.setdefault(broker, {}), _below(disk, folder)
        if folder not in known and _has_records(holds):
            known[folder] = holds
            self._held[broker, folder] = read_held(disk, folder)
            self.mark("2d stray")

    def path_goes(self, broker: Node, path: str) -> None:
        """M5: a folder that is removed for good belongs to a deleted stream, or to a replica that left."""
        folder = next((part for part in path.split("/") if ".deleted-" in part), "")
        if not folder or path.rpartition("/")[2] != folder:
            return
        stream_id = bytes.fromhex(folder.rpartition(".deleted-")[2].partition("-")[0].partition(".")[0])
        self.mark("M5 folder removed")
        if "-" not in folder.rpartition(".deleted-")[2]:
            require(
                stream_id not in self.image.streams,
                "I18",
                f"broker {broker.id} removes the folder {folder}, and its stream is not deleted",
            )

    def power_lost(self, broker: Node, before: FakeDisk) -> None:
        """A power loss may remove files of a stray that were only in the page cache."""
        known = self._strays.get(broker.id, {})
        for folder in list(known):
            left = _below(broker.disk, folder)
            if _below(before, folder) == known[folder] and _has_records(left):
                known[folder] = left
            else:
                # No file of it was on the disk, or the folder was moved aside, which was checked before.
                del known[folder]

    def found_again(self, replica: Replica) -> None:
        """A log is opened: the identity in its folder must be that of the partition."""
        broker, folder = replica.node, replica.log.folder
        require(
            read_identity(broker.disk, folder) == replica.key,
            "I17",
            f"broker {broker.id} opens the folder {folder} as {replica.name}; it belongs to "
            "another partition",
        )
        self.forget_stray(broker.id, folder)

    def forget_stray(self, broker: int, folder: str) -> None:
        """A stray was moved away by hand, or has rotted: it is no longer checked."""
        self._strays.get(broker, {}).pop(folder, None)

    def strays_kept(self, broker: Node) -> None:
        """I17: a broker does not change stray folders."""
        known = self._strays.get(broker.id, {})
        for folder, was in list(known.items()):
            if self._has_left(broker.id, folder):
                del known[folder]
                continue
            require(
                was in (_below(broker.disk, folder), *_moved_aside(broker.disk, folder)),
                "I17",
                f"broker {broker.id} changed or deleted the stray folder {folder}",
            )

    def _has_left(self, broker: int, folder: str) -> bool:
        """R16: the replica of this folder left, and the broker has another assignment in its place."""
        held = self._held.get((broker, folder))
        placed = held and self.image.partition(*held.key)
        return bool(
            held and placed and broker in placed.replicas and held.assignment < placed.assignment_of(broker)
        )

    def strays_lost(self, broker: Node) -> None:
        """The strays of a broker are lost with its disk."""
        self._strays.pop(broker.id, None)


def _below(disk: FakeDisk, folder: str) -> dict[str, bytes]:
    """The files below a folder, by their path in it."""
    start = f"{folder}/"
    return {path.removeprefix(start): data for path, data in disk.tree().items() if path.startswith(start)}


def _has_records(holds: dict[str, bytes]) -> bool:
    return any(data for name, data in holds.items() if name.endswith(".log"))


def _moved_aside(disk: FakeDisk, folder: str) -> list[dict[str, bytes]]:
    """The folders that were moved aside from this place, because the broker needed it for a replica."""
    parent, _, name = folder.rpartition("/")
    start = f"{parent}/.stray-{name}"
    # Only the files are known: a disk after its crash point answers no other call.
    found = {path[: path.index("/", len(parent) + 1)] for path in disk.tree() if path.startswith(start)}
    return [_below(disk, other) for other in sorted(found) if other == start or other.startswith(f"{start}.")]
