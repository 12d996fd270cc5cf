"""The metadata goes on by force from one voter's log, as if most voters were lost (M2a).

People keep what they are told (docs/operations.md): they recover the voter that knows most, or another one
that has everything that was committed, and never start a majority with the logs of before. Those that
start with theirs all the same are refused, and start over by themselves or by command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simulator.node import ROOT, Node
from tidelog_broker.core.raft.quorum import majority
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.runtime.quorum_recovery import recover_quorum, start_over
from tidelog_broker.storage.data_directory import DataDirectory

if TYPE_CHECKING:
    from simulator.run import Simulation

START_OVER = "--start-over"
"""In what a broker says at its end whose log knows more than the recovery."""


class _Voter(NamedTuple):
    node: Node
    directory: DataDirectory
    last: tuple[int, int]
    """(term, index) of its last entry."""


class QuorumRecoveries:
    """See the module."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._rng = run.world.rng_of("recoveries")

    def recover(self) -> None:
        run, rng = self._run, self._rng
        members = run.checks.voters
        if len(members) < 2:
            return
        for node in run.up():
            run.end(node, power=rng.random() < 0.5)
        voters = [found for member in members if (found := self._voter(member.broker_id)) is not None
                  and found.directory.directory_id == member.directory_id]  # fmt: skip
        most = majority(len(members))
        if len(voters) < most:
            return
        best = max(voters, key=lambda voter: voter.last)
        everything = run.checks.last_applied
        chosen = best if rng.random() < 0.5 else rng.choice(voters)
        if chosen.last[0] < best.last[0] or chosen.last[1] < everything:
            # What it lacks may be committed.
            chosen = best
        recover_quorum(chosen.directory, force=True, new_id=lambda: rng.randbytes(16))
        others = [voter for voter in voters if voter is not chosen]
        rng.shuffle(others)
        left = most - 1 - (len(members) - len(voters))
        for voter in others[rng.randint(0, max(0, left)) :]:
            start_over(voter.directory)
        run.checks.mark("M2a recovered by force")
        run.world.tell(f"the metadata goes on by force from broker {chosen.node.id}, at entry {chosen.last}")

    def _voter(self, broker: int) -> _Voter | None:
        """What a voter's disk holds; None: it cannot be read, or is not the one that voted."""
        node = self._run.brokers[broker]
        if self._run.checks.lies(node) or not DataDirectory.is_formatted(node.disk, ROOT):
            return None
        directory = self._open(node)
        if directory is None:
            return None
        try:
            report = recover_quorum(directory, force=False)
        except DataDirectoryError:
            return None
        return _Voter(node, directory, (report.last_term, report.last_index))

    def start_over(self, node: Node) -> None:
        """A broker was refused because its log knows more than the recovery: people give that up."""
        directory = self._open(node)
        assert directory is not None, "it was read a moment ago"
        start_over(directory)
        self._run.checks.mark("M2a started over by hand")
        self._run.world.tell(f"the metadata log of broker {node.id} is set aside by hand")

    @staticmethod
    def _open(node: Node) -> DataDirectory | None:
        boot = f"boot {node.boots}"
        try:
            return DataDirectory.open(
                node.disk, ROOT, read_boot_id=lambda: boot, lock=lambda path: lambda: None
            )
        except DataDirectoryError:
            return None
