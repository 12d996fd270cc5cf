"""What only the controller does, during one leadership of the metadata quorum.

An `ActiveController` begins when a leader knows what is committed, and ends with the leadership. It keeps
the image after every entry of the log, on which decisions are made, and the memory that
only the controller has: sessions, reports, clocks, and brokers that should not lead (M3). `core.metadata`
makes the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import Command, decode_command, encode_command
from tidelog_broker.core.metadata.controller.clocks import Clocks
from tidelog_broker.core.metadata.controller.deprioritized import DeprioritizedLeaders
from tidelog_broker.core.metadata.controller.handovers import Handovers
from tidelog_broker.core.metadata.controller.liveness import Sessions
from tidelog_broker.core.metadata.controller.reports import Evidence, FailureReports
from tidelog_broker.core.metadata.controller.upkeep import Upkeep
from tidelog_broker.core.metadata.decisions import quorum_plan
from tidelog_broker.core.metadata.feature_levels import FeatureLevels
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.raft.errors import Busy, NotRaftLeader
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.membership.wire import Report
from tidelog_broker.model import EntryType, Voter
from tidelog_broker.quorum.driver import RaftDriver

log = structlog.get_logger(__name__)

COMMANDS_AT_ONCE_MAX: Final = 100
"""Commands that the controller proposes unasked in one tick."""

CAUGHT_UP_ENTRIES: Final = 5
"""A learner that lacks at most so many entries can vote."""

TIP_BYTES: Final = 4 << 20
"""Bytes of entries read at a time when the role begins."""


class ActiveController:
    """The controller's role in one term of the quorum."""

    def __init__(
        self,
        driver: RaftDriver,
        image: ClusterImage,
        *,
        voters_wanted: int,
        formed: Callable[[], bool],
    ) -> None:
        """`image`: the applied one; `formed`: it is known outside of all volumes that a cluster exists."""
        self._driver = driver
        self.node = driver.node
        self.term = driver.node.term
        self.voters_wanted = voters_wanted
        self._formed = formed
        self.tip = image
        """The image after every entry of the log."""
        self.images: dict[int, ClusterImage] = {}
        """The tip after each entry that was proposed here and is not applied yet."""
        self.sessions = Sessions()
        self.clocks = Clocks()
        self.deprioritized = DeprioritizedLeaders()
        self.handovers = Handovers()
        self.feature_levels = FeatureLevels()
        self._upkeep = Upkeep(self.sessions, FailureReports(), self.deprioritized, self.handovers)
        self._catch_up()

    def __repr__(self) -> str:
        return f"<ActiveController term={self.term} {self.tip!r}>"

    def _catch_up(self) -> None:
        """Brings the tip up to entries of earlier leaders that are not applied yet."""
        raft_log, index = self.node.log, self._driver.applied + 1
        while index <= raft_log.last_index:
            for entry in raft_log.entries(index, raft_log.last_index + 1, TIP_BYTES):
                if entry.type is EntryType.COMMAND:
                    self.tip = apply(self.tip, decode_command(entry.payload), entry.index)
                index = entry.index + 1

    def propose(self, commands: Sequence[Command]) -> int:
        """The index of the last entry. Raises `core.raft.errors.Busy`, `NotRaftLeader`, `InvalidRequest`."""
        last = self._driver.propose([encode_command(command) for command in commands])
        for index, command in enumerate(commands, last - len(commands) + 1):
            self.tip = apply(self.tip, command, index)
            self.images[index] = self.tip
        return last

    def report(self, report: Report, now_ms: int) -> None:
        """R14: the evidence of one broker against another counts from now."""
        self._upkeep.reports.report(
            self.tip,
            reporter=report.reporter,
            reporter_run=report.reporter_run,
            reported=report.reported,
            reported_run=report.reported_run,
            evidence=Evidence(report.evidence),
            now_ms=now_ms,
        )
        self.keep_up(now_ms)

    def keep_up(self, now_ms: int) -> None:
        """Proposes the commands that are due now and that no request asks for, such as a fencing."""
        for _ in range(COMMANDS_AT_ONCE_MAX):
            command = self._upkeep.next_command(self.tip, now_ms)
            if command is None:
                break
            try:
                self.propose([command])
            except (Busy, NotRaftLeader):
                # The next tick proposes it again, and reports are repeated.
                return
            log.info("the controller proposes a change on its own", command=repr(command)[:200])
        self._raise_feature_level()
        self._plan_voters()

    def _raise_feature_level(self) -> None:
        command = self.feature_levels.next_command(self.tip)
        if command is None:
            return
        try:
            self.propose([command])
        except (Busy, NotRaftLeader):
            return
        log.info("the feature level of the cluster rises: every broker understands it", level=command.level)

    @property
    def alone(self) -> bool:
        """Only one broker votes, and a second one may not vote yet (M1)."""
        return len(self.node.configuration.voters) == 1 and not self._formed()

    def _plan_voters(self) -> None:
        role = self.node.role
        if not isinstance(role, Leader):
            return
        commit = self.node.log.commit
        caught_up: dict[Voter, bool] = {
            peer: progress.heard and progress.match >= commit - CAUGHT_UP_ENTRIES
            for peer, progress in role.progress.items()
        }
        planned = quorum_plan.next_configuration(
            self.node.configuration,
            self.tip,
            caught_up,
            self.voters_wanted,
            leader=self.node.me.broker_id,
        )
        if planned is None or (self.alone and len(planned.voters) > 1):
            return
        try:
            self._driver.configure(planned)
        except (Busy, NotRaftLeader):
            return
        log.info(
            "the set of voters of the metadata quorum is being changed",
            voters=[voter.broker_id for voter in planned.voters],
            learners=[learner.broker_id for learner in planned.learners],
        )
