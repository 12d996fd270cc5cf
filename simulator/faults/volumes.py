"""Volumes that changed while their broker was down: put back from a copy (R19), or with a rotten file.

A broker that refuses to start on a changed volume starts again on an empty one, as docs/operations.md
advises. Only brokers that the cluster can spare have these faults, so that the last copy of a record is never
lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from simulator.cluster import Cluster
from simulator.disk import FakeDisk
from simulator.faults.disks import DiskFaults
from simulator.node import ROOT, Node
from tidelog_broker.storage.directory.data_directory import DataDirectory

COPY_CHANCE: Final = 0.3
"""How often a volume is copied although a copy could be put back."""

ELECTION_CHANCE: Final = 0.4
"""How often the controller ends at the moment when a volume is put back."""

VITAL: Final = ("meta.json", "hard-state")
"""Files without which a broker does not start: if one is rotten the broker must refuse the volume."""

KINDS: Final = (
    "meta.json",
    "hard-state",
    "raft log",
    "leader-epochs",
    "identity",
    "index",
    "timeindex",
    "guard",
    "damaged-ranges",
    "recovery-points",
    "high-watermarks",
    "log-start-offsets",
    "log-start-offsets.copy",
    "retention-time",
    "dated-ahead",
    "clean-stop",
)
"""The kinds of files that rot here. Segments rot in `disks`."""


class Copy(NamedTuple):
    """A copy of a volume."""

    disk: FakeDisk
    directory_id: bytes
    starts: int
    """How often the broker had started on the volume."""


class VolumeFaults:
    """Changes volumes of brokers that are down. Draws from its own random stream."""

    def __init__(self, cluster: Cluster, disks: DiskFaults) -> None:
        self._cluster = cluster
        self._disks = disks
        self._rng = cluster.world.rng_of("volumes")
        self._copies: dict[int, Copy] = {}

    # --- copies

    def copy_or_put_back(self) -> None:
        """Copies a volume, or puts an earlier copy in its place."""
        cluster, rng = self._cluster, self._rng
        known = [node for node in cluster.up() if self._can_tell(node) and self._disks.can_spare(node)]
        if known and rng.random() > COPY_CHANCE:
            self._put_back(rng.choice(known))
            return
        nodes = [node for node in cluster.up() if node.directory_id and node.assembly is not None]
        if nodes:
            self._copy(rng.choice(nodes))

    def _copy(self, node: Node) -> None:
        # A snapshot of a volume has the bytes that a power loss would leave.
        disk = node.disk.crash(self._rng)
        if DataDirectory.is_formatted(disk, ROOT):
            opened = DataDirectory.open_to_recover(disk, ROOT, lock=lambda path: lambda: None)
            self._copies[node.id] = Copy(disk, opened.directory_id, opened.meta.start_count)
            self._cluster.world.tell(
                f"the volume of broker {node.id} is copied, at start {opened.meta.start_count}"
            )

    def _can_tell(self, node: Node) -> bool:
        """R19: whether the broker has registered a later start than that of its copy, so that the cluster can
        refuse the copy. If the starts are the same, only the broker's controller could tell."""
        copy, image = self._copies.get(node.id), self._cluster.checks.image
        known = image.brokers.get(node.id)
        if copy is None or known is None:
            return False
        same = copy.directory_id == node.directory_id == known.directory_id
        return same and known.starts > copy.starts

    def _put_back(self, node: Node) -> None:
        cluster, copy = self._cluster, self._copies[node.id]
        cluster.crash(node, power=self._rng.random() < 0.5)
        node.replace_disk(copy.disk.copy())
        cluster.checks.disk_lost(node)
        cluster.checks.volume_lies(node, refused=True)
        cluster.checks.mark("R19 put back")
        cluster.world.tell(f"the volume of broker {node.id} is put back from a copy of start {copy.starts}")
        self._start_later(node)
        controller = next((one for one in cluster.up() if one.controls), None)
        if controller is not None and self._rng.random() < ELECTION_CHANCE:
            # The next candidate asks the voter with the old volume for its vote before that is refused.
            cluster.end(controller, power=False)

    # --- rot

    def rot(self) -> None:
        """Flips one bit of a file that is no segment, while its broker is down."""
        cluster, rng = self._cluster, self._rng
        victims = [node for node in cluster.up() if self._disks.can_spare(node)]
        if not victims:
            return
        node = rng.choice(victims)
        cluster.crash(node, power=rng.random() < 0.5)
        found: dict[str, list[str]] = {}
        tree = node.disk.tree()
        for path, content in tree.items():
            kind = _kind_of(path)
            if kind and content:
                found.setdefault(kind, []).append(path)
        kind = rng.choice([kind for kind in KINDS if kind in found])
        path = rng.choice(found[kind])
        node.disk.flip(path, rng.randrange(len(tree[path])), rng.randrange(8))
        cluster.checks.forget_stray(node.id, path.rpartition("/")[0])
        cluster.checks.mark(f"2c rot in {kind}")
        cluster.world.tell(f"broker {node.id}: a bit turns over in {path}")
        if kind in VITAL or kind == "raft log":
            cluster.checks.disk_lost(node)
            cluster.checks.volume_lies(node, refused=kind in VITAL)
        self._start_later(node)

    def _start_later(self, node: Node) -> None:
        cluster = self._cluster
        cluster.world.after(self._rng.randint(*cluster.plan.down_us), lambda: cluster.start(node))

    # --- repair

    def empty(self, node: Node) -> bool:
        """Gives a broker that refused its volume an empty one. False: this module did not change the
        volume."""
        if not self._cluster.checks.lies(node):
            return False
        self._cluster.world.tell(f"the volume of broker {node.id} is emptied")
        self._cluster.checks.mark("R19 emptied")
        self._cluster.checks.disk_lost(node)
        self._copies.pop(node.id, None)
        node.new_disk()
        return True


def _kind_of(path: str) -> str:
    """The kind of a file (`KINDS`); empty: the file never rots here."""
    *folders, name = path.split("/")
    if any(part.startswith(".") for part in folders) or ".cut-" in name:
        return ""
    if "raft" in folders:
        return name if name == "hard-state" else "raft log" if name.endswith(".log") else ""
    suffix = name.rpartition(".")[2]
    return next((kind for kind in (name, suffix) if kind in KINDS), "")
