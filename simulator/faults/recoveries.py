"""Forced recoveries: the metadata continues from the log of one voter, as if most voters were lost (M2a).

The voter is the one with the latest log, or another one. Then committed changes are forgotten: leaders, ISRs
and replicas are as they were before these changes. The recovery never forgets that a stream was created,
deleted, or got more partitions, because the clients of this stream could not continue.

The administrator follows docs/operations.md, and never starts a majority with logs from before the recovery.
A broker that starts with one of these logs is refused, and starts over without or with a command.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from simulator.cluster import Cluster
from simulator.node import ROOT, Node
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.raft.quorum import majority
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.model import Voter
from tidelog_broker.offline.quorum_recovery import recover_quorum, start_over
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.raft.recovery import open_raft_log

START_OVER = "--start-over"
"""In the error of a broker whose log is ahead of the recovery: the command that it needs."""


class _Voter(NamedTuple):
    """A voter whose disk can be read."""

    node: Node
    last: tuple[int, int]
    """(term, index) of its last entry."""
    shared: int
    """The last entry of its log that some broker applied."""


class QuorumRecoveries:
    """Recovers the metadata quorum by force."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.world.rng_of("recoveries")

    def recover(self) -> None:
        cluster, rng = self._cluster, self._rng
        members = cluster.checks.voters
        if len(members) < 2:
            return
        for node in cluster.up():
            cluster.end(node, power=rng.random() < 0.5)
        voters = [voter for member in members if (voter := self._voter(member)) is not None]
        most = majority(len(members))
        if len(voters) < most:
            return
        best = max(voters, key=lambda voter: voter.last)
        able = [voter for voter in voters if voter is best or self._may_forget(voter)]
        chosen = min(able, key=lambda voter: voter.shared) if rng.random() < 0.5 else best
        if chosen.shared < cluster.checks.last_applied:
            cluster.watch.forget(chosen.shared)
        history = rng.randbytes(16)
        self._insist(chosen.node, lambda it: recover_quorum(it, force=True, new_id=lambda: history))
        others = [voter for voter in voters if voter is not chosen]
        rng.shuffle(others)
        # Voters whose disk cannot be read now may come back as well.
        left = max(0, most - 1 - (len(members) - len(voters)))
        for voter in others[rng.randint(0, left) :]:
            self._insist(voter.node, start_over)
        cluster.checks.mark("M2a recovered by force")
        cluster.world.tell(
            f"the metadata goes on by force from broker {chosen.node.id}, behind entry {chosen.shared}"
        )

    def _voter(self, member: Voter) -> _Voter | None:
        """The log on a voter's disk; None: the disk cannot be read, or is not the disk that votes."""
        node, checks = self._cluster.nodes[member.broker_id], self._cluster.checks
        if checks.lies(node) or not DataDirectory.is_formatted(node.disk, ROOT):
            return None
        directory = self._open(node)
        if directory is None or directory.directory_id != member.directory_id:
            return None
        try:
            report = recover_quorum(directory, force=False)
        except DataDirectoryError:
            return None
        if member.broker_id not in report.voters:
            return None
        log = open_raft_log(
            directory.files, directory.raft_folder, same_boot=directory.same_boot, reserve=directory.reserve
        )
        shared = min(log.last_index, checks.last_applied)
        while shared > log.snapshot_index and log.term(shared) != checks.applied_term(shared):
            shared -= 1
        log.close()
        return _Voter(node, (report.last_term, report.last_index), shared)

    def _may_forget(self, voter: _Voter) -> bool:
        image = self._cluster.watch.image_at(voter.shared)
        return image is not None and _partitions(image) == _partitions(self._cluster.checks.image)

    def start_over(self, node: Node) -> None:
        """A broker was refused because its log is ahead of the recovery: the administrator sets the log
        aside."""
        self._insist(node, start_over)
        self._cluster.checks.mark("M2a started over by hand")
        self._cluster.world.tell(f"the metadata log of broker {node.id} is set aside by hand")

    def _insist(self, node: Node, change: Callable[[DataDirectory], object]) -> None:
        """Changes a data directory. On a full disk, the administrator makes room and tries again."""
        for room in (False, True):
            directory = self._open(node)
            assert directory is not None, "it was read a moment ago"
            try:
                change(directory)
                return
            except OSError as error:
                if room or error.errno != errno.ENOSPC:
                    raise
            node.disk.fill(None)
            self._cluster.checks.mark("M2a asked again")

    @staticmethod
    def _open(node: Node) -> DataDirectory | None:
        boot = f"boot {node.boots}"
        try:
            return DataDirectory.open(
                node.disk, ROOT, read_boot_id=lambda: boot, lock=lambda path: lambda: None
            )
        except DataDirectoryError:
            return None


def _partitions(image: ClusterImage) -> dict[bytes, int]:
    """By stream: how many partitions it has."""
    return {stream_id: len(stream.partitions) for stream_id, stream in image.streams.items()}
