"""Checks of folders that are nobody's there, or somebody else's, or deleted (I17, I18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks.truth import Knowledge, Setup, require
from tidelog_broker.storage.folder.identity import Held, read_held, read_identity

if TYPE_CHECKING:
    from simulator.disk import FakeDisk
    from simulator.node import Node, Replica


class StrayChecks(Knowledge):
    """See the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._strays: dict[int, dict[str, dict[str, bytes]]] = {}
        """By broker and folder: what lay in it when it became a stray (2d)."""
        self._held: dict[tuple[int, str], Held | None] = {}
        """Whose it was then (R16)."""

    def stray(self, broker: int, disk: FakeDisk, folder: str) -> None:
        """From now on a folder belongs to nobody whom the image knows (2d)."""
        known, holds = self._strays.setdefault(broker, {}), _below(disk, folder)
        if folder not in known and _has_records(holds):
            known[folder] = holds
            self._held[broker, folder] = read_held(disk, folder)
            self.mark("2d stray")

    def path_goes(self, broker: Node, path: str) -> None:
        """M5: what is removed for good belongs to a stream that is deleted, or to a replica that left."""
        folder = next((part for part in path.split("/") if ".deleted-" in part), "")
        if not folder or path.rpartition("/")[2] != folder:
            return
        stream_id = bytes.fromhex(folder.rpartition(".deleted-")[2].partition("-")[0].partition(".")[0])
        self.mark("M5 folder removed")
        if "-" not in folder.rpartition(".deleted-")[2]:
            require(
                stream_id not in self.image.streams,
                "I18",
                f"broker {broker.id} removes {folder}, and the stream is not deleted",
            )

    def power_lost(self, broker: Node, before: FakeDisk) -> None:
        """What of a stray was in the page cache only may be gone; that is nobody's doing."""
        known = self._strays.get(broker.id, {})
        for folder in list(known):
            left = _below(broker.disk, folder)
            if _below(before, folder) == known[folder] and _has_records(left):
                known[folder] = left
            else:
                # Nothing of it was on the disk; or it was moved aside, which was checked.
                del known[folder]

    def found_again(self, replica: Replica) -> None:
        """A log is opened: its folder says that it is this partition's, whatever it was before."""
        broker, folder = replica.node, replica.log.folder
        require(
            read_identity(broker.disk, folder) == replica.key,
            "I17",
            f"broker {broker.id} opens {folder} as {replica.name}, and it is another's",
        )
        self.forget_stray(broker.id, folder)

    def forget_stray(self, broker: int, folder: str) -> None:
        """Somebody moved a stray away, by hand, or it rotted: nothing is expected of it."""
        self._strays.get(broker, {}).pop(folder, None)

    def strays_kept(self, broker: Node) -> None:
        """I17: nobody touches what is not his."""
        known = self._strays.get(broker.id, {})
        for folder, was in list(known.items()):
            if self._has_left(broker.id, folder):
                del known[folder]
                continue
            require(
                was in (_below(broker.disk, folder), *_moved_aside(broker.disk, folder)),
                "I17",
                f"broker {broker.id} changed or deleted {folder}, which belongs to nobody there",
            )

    def _has_left(self, broker: int, folder: str) -> bool:
        """R16: the replica of this folder left, and the broker has another assignment in its place."""
        held = self._held.get((broker, folder))
        placed = held and self.image.partition(*held.key)
        return bool(
            held and placed and broker in placed.replicas and held.assignment < placed.assignment_of(broker)
        )

    def strays_lost(self, broker: Node) -> None:
        """With the disk on which they were."""
        self._strays.pop(broker.id, None)


def _below(disk: FakeDisk, folder: str) -> dict[str, bytes]:
    """By name inside the folder."""
    start = f"{folder}/"
    return {path.removeprefix(start): data for path, data in disk.tree().items() if path.startswith(start)}


def _has_records(holds: dict[str, bytes]) -> bool:
    return any(data for name, data in holds.items() if name.endswith(".log"))


def _moved_aside(disk: FakeDisk, folder: str) -> list[dict[str, bytes]]:
    """What lay in its place, where something else had to be made."""
    parent, _, name = folder.rpartition("/")
    start = f"{parent}/.stray-{name}"
    # By the files alone: a disk that has met its end answers no other question.
    found = {path[: path.index("/", len(parent) + 1)] for path in disk.tree() if path.startswith(start)}
    return [_below(disk, other) for other in sorted(found) if other == start or other.startswith(f"{start}.")]
