"""A simulated broker's part in the metadata quorum: performs Raft, applies entries, and controls if it leads.

The rules are `core.raft` and `core.metadata`; the disk is the real metadata log over a simulated one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, assert_never

from simulator.checks import Checks
from simulator.network import Network
from simulator.requests import (
    ChangeIsr,
    Denied,
    Done,
    Heartbeat,
    LoseReplica,
    NotNow,
    Register,
    Report,
    Request,
    Response,
)
from simulator.world import MS, World
from tidelog.errors import TidelogError
from tidelog_broker.core.metadata import isr_changes, quorum_plan, registration
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import Command, decode_command, encode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.liveness import Sessions
from tidelog_broker.core.metadata.reports import FailureReports
from tidelog_broker.core.metadata.snapshot import decode_image, encode_image
from tidelog_broker.core.metadata.upkeep import Upkeep, stop
from tidelog_broker.core.raft.errors import Busy, NotLeader
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.ready import Ready
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.model import Entry, EntryType, Snapshot, Voter
from tidelog_broker.storage.raft_log import RaftLog

TICK_US: Final = 20 * MS
TIMES: Final = RaftTimes()
FAST_TICK_US: Final = 4 * MS
FAST_TIMES: Final = RaftTimes(election=6, heartbeat=2, refused=1)
"""For runs in which elections are to collide."""
SNAPSHOT_ENTRIES: Final = 40
COMMANDS_AT_ONCE_MAX: Final = 20
"""Of the controller's own accord, at one tick."""

CAUGHT_UP_ENTRIES: Final = 5
"""A learner that lacks no more can vote."""

Answer = Callable[[Response], None]
Applied = Callable[[ClusterImage, ClusterImage], None]


class Controller:
    """What a leader of the quorum keeps for the length of its term."""

    def __init__(self, term: int, tip: ClusterImage, sessions: Sessions) -> None:
        self.term = term
        self.tip = tip
        """The image after every entry of the log."""
        self.sessions = sessions
        self.upkeep = Upkeep(sessions, FailureReports())


class Quorum:
    """See the module."""

    def __init__(
        self,
        world: World,
        network: Network,
        quorums: dict[int, Quorum],
        me: Voter,
        log: RaftLog,
        rng: random.Random,
        *,
        voters_wanted: int,
        times: RaftTimes,
        disk_delay: Callable[[], int],
        alive: Callable[[], bool],
        applied: Applied,
        checks: Checks,
    ) -> None:
        """`quorums`: of the brokers that run, by id; messages go to whoever is there when they arrive."""
        self._world = world
        self._network = network
        self._quorums = quorums
        self.me = me
        self.log = log
        self._rng = rng
        self._voters_wanted = voters_wanted
        self._disk_delay = disk_delay
        self._alive = alive
        self._on_applied = applied
        self._checks = checks
        self.image, self.applied = _replayed(log)
        self.node = RaftNode(me, log, log.hard_state, log.configurations, times=times, rng=rng)
        self.controller: Controller | None = None
        self._waiting: dict[int, tuple[int, list[Answer]]] = {}
        """By index: the term of the proposal, and who waits for it."""
        self._snapshot_due = self.applied + SNAPSHOT_ENTRIES
        self._told = ""
        self._pump()

    def __repr__(self) -> str:
        return f"<Quorum {self.node!r} applied={self.applied}>"

    # --- time and messages

    def tick(self) -> None:
        self.node.tick()
        self._pump()
        self._control()

    def receive(self, message: Message) -> None:
        self.node.step(message)
        self._pump()

    def refused(self, broker: int) -> None:
        """A machine refused a connection."""
        for voter in (*self.node.configuration.voters, *self.node.configuration.learners):
            if voter.broker_id == broker:
                self.node.refused(voter)
                self.node.disconnected(voter)
        self._pump()

    def _send(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            target = message.target.broker_id

            def deliver(message: Message = message, target: int = target) -> None:
                quorum = self._quorums.get(target)
                if quorum is not None:
                    quorum.receive(message)

            if target in self._network.hosts:
                self._network.send(self.me.broker_id, target, deliver)

    def _pump(self) -> None:
        """Performs what the node wants, until it waits for the disk."""
        while (ready := self.node.ready()) is not None:
            self._send(ready.messages)
            if ready.persist is not None:
                self._write(ready)
                # What is committed may be applied while the disk writes.
                self._apply(ready.committed)
                break
            self._apply(ready.committed)
            self._send(self.node.advance(ready))
        self._tell_role()

    def _write(self, ready: Ready) -> None:
        persist = ready.persist
        assert persist is not None
        early = self._rng.random() < 0.5
        if early:
            self.log.save(*persist)

        def written() -> None:
            if not self._alive():
                return
            if not early:
                self.log.save(*persist)
            if persist.snapshot is not None:
                self._restore(persist.snapshot)
            self._send(self.node.advance(ready))
            self._pump()

        self._world.after(self._disk_delay(), written)

    # --- entries

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        if not entries:
            return
        before = self.image
        for entry in entries:
            assert entry.index == self.applied + 1, (entry.index, self.applied)
            self._checks.applied(self.me.broker_id, entry)
            self.applied = entry.index
            if entry.type is EntryType.COMMAND:
                self.image = apply(self.image, decode_command(entry.payload), entry.index)
            waiting = self._waiting.pop(entry.index, None)
            if waiting is not None:
                term, answers = waiting
                for answer in answers:
                    answer(Done() if term == entry.term else NotNow("another leader's entry took its place"))
        if self.image is not before:
            self._on_applied(before, self.image)
        if self.applied >= self._snapshot_due and self.applied <= self.log.durable_index:
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        if self.log.snapshot_index >= self.applied or self.log.term(self.applied) is None:
            return
        configuration = self.node.configuration_at(self.applied)
        self.log.save_snapshot(configuration, self.applied, encode_image(self.image))
        self.node.compacted(self.applied)
        self._snapshot_due = self.applied + SNAPSHOT_ENTRIES

    def _restore(self, snapshot: Snapshot) -> None:
        before, self.image = self.image, decode_image(snapshot.data)
        self.applied = snapshot.index
        self._world.tell(f"broker {self.me.broker_id} got the image of entry {snapshot.index}")
        self._on_applied(before, self.image)

    def _tell_role(self) -> None:
        role = f"{self.node.role_name} term={self.node.term}"
        if role != self._told:
            self._told = role
            self._world.tell(f"broker {self.me.broker_id} is {role}")
            if role.startswith("candidate"):
                self._checks.candidate(self.me.broker_id)
        if self.controller is not None and (not self.node.leads or self.controller.term != self.node.term):
            # Who waits is not answered, as if the answer was lost: the entries may be committed yet.
            self.controller = None
            self._waiting.clear()
        if self.node.leads and self.controller is None:
            self._checks.controls(self.me, self.node.term)
            self.controller = Controller(self.node.term, self._tip(), Sessions())

    def _tip(self) -> ClusterImage:
        image, index = self.image, self.applied + 1
        while index <= self.node.log.last_index:
            for entry in self.node.log.entries(index, self.node.log.last_index + 1, 1 << 20):
                if entry.type is EntryType.COMMAND:
                    image = apply(image, decode_command(entry.payload), entry.index)
                index = entry.index + 1
        return image

    # --- controlling

    @property
    def controls(self) -> bool:
        """It leads, and knows that it does: an entry of its term is committed."""
        log = self.node.log
        return self.controller is not None and log.term(log.commit) == self.node.term

    def _control(self) -> None:
        controller = self.controller
        if controller is None or not self.controls:
            return
        now_ms = self._world.now // MS
        for _ in range(COMMANDS_AT_ONCE_MAX):
            command = controller.upkeep.next_command(controller.tip, now_ms)
            if command is None or not self._propose(controller, command):
                break
            self._world.tell(f"controller {self.me.broker_id}: {_short(command)}")
        self._plan_voters(controller)

    def _plan_voters(self, controller: Controller) -> None:
        configuration = self.node.configuration
        planned = quorum_plan.next_configuration(
            configuration,
            controller.tip,
            self._caught_up(),
            self._voters_wanted,
            leader=self.me.broker_id,
        )
        if planned is not None and self.node.leads:
            try:
                self.node.configure(planned)
            except Busy:
                return
            if len(planned.voters) > len(configuration.voters):
                self._checks.mark("M1 a learner votes")
            if len(planned.voters) < len(configuration.voters):
                self._checks.mark("M2 a voter goes")
            voters = [voter.broker_id for voter in planned.voters]
            learners = [voter.broker_id for voter in planned.learners]
            self._world.tell(f"controller {self.me.broker_id}: voters {voters} learners {learners}")
            self._pump()

    def _caught_up(self) -> dict[Voter, bool]:
        role = self.node.role
        if not isinstance(role, Leader):
            return {}
        commit = self.node.log.commit
        return {
            peer: progress.heard and progress.match >= commit - CAUGHT_UP_ENTRIES
            for peer, progress in role.progress.items()
        }

    def _propose(self, controller: Controller, command: Command, answer: Answer | None = None) -> bool:
        try:
            index = self.node.propose([encode_command(command)])
        except (NotLeader, Busy):
            return False
        controller.tip = apply(controller.tip, command, index)
        if answer is not None:
            self._waiting[index] = (self.node.term, [answer])
        self._pump()
        return True

    def ask(self, request: Request, answer: Answer) -> None:
        """Somebody asks the controller; `answer` may never be called."""
        controller = self.controller
        if controller is None or not self.controls:
            answer(NotNow("not the controller"))
            return
        now_ms = self._world.now // MS
        try:
            command = self._decide(controller, request, now_ms)
        except TidelogError as error:
            answer(NotNow(str(error)) if error.retriable else Denied(str(error)))
            return
        if isinstance(command, NotNow):
            answer(command)
        elif isinstance(command, Denied):
            # A refusal rests on what is committed only once everything before it is.
            self._after_everything(command, answer)
        elif command is None:
            self._after_everything(Done(), answer)
        elif not self._propose(controller, command, answer):
            answer(NotNow("not the controller"))
        else:
            self._world.tell(f"controller {self.me.broker_id}: {_short(command)}")

    def _after_everything(self, response: Response, answer: Answer) -> None:
        index = self.node.log.last_index
        if index <= self.applied:
            answer(response)
            return

        def passed_on(result: Response) -> None:
            answer(response if isinstance(result, Done) else result)

        term = self.node.log.term(index)
        assert term is not None
        self._waiting.setdefault(index, (term, []))[1].append(passed_on)

    def _decide(
        self, controller: Controller, request: Request, now_ms: int
    ) -> Command | Denied | NotNow | None:
        tip, sessions = controller.tip, controller.sessions
        match request:
            case Register(asked):
                known = tip.brokers.get(asked.broker_id)
                if known is not None and known.incarnation != asked.incarnation:
                    self._checks.mark("R10 another run")
                if known is not None and known.directory_id != asked.directory_id:
                    self._checks.mark("R6 another directory")
                return registration.register(tip, asked, sessions, now_ms)
            case Heartbeat(broker, incarnation, stopping):
                if not sessions.heard(tip, broker, incarnation, now_ms):
                    return Denied("another run is registered")
                return stop(tip, broker, incarnation) if stopping else None
            case Report():
                controller.upkeep.reports.report(
                    tip,
                    reporter=request.reporter,
                    reporter_run=request.reporter_run,
                    reported=request.reported,
                    reported_run=request.reported_run,
                    evidence=request.evidence,
                    now_ms=now_ms,
                )
                self._control()
                return None
            case ChangeIsr(proposal):
                return self._change_isr(controller, proposal)
            case LoseReplica(broker, incarnation, name):
                return registration.lose(tip, broker, incarnation, (name,))
            case _:
                assert_never(request)

    def _change_isr(
        self, controller: Controller, proposal: isr_changes.IsrProposal
    ) -> Command | Denied | NotNow | None:
        command, (result,) = isr_changes.change_isr(controller.tip, [proposal])
        if isinstance(result, isr_changes.Accepted):
            return command
        if result.refusal.ask_again:
            return NotNow(result.reason)
        if command is not None:
            # The refusal itself is an entry; the proposer hears of it when that is committed.
            self._propose(controller, command)
        return Denied(result.reason)


def _replayed(log: RaftLog) -> tuple[ClusterImage, int]:
    """The image of the newest snapshot; what is behind it is applied once it is known to be committed."""
    snapshot = log.snapshot
    if snapshot is None:
        return ClusterImage(), 0
    return decode_image(snapshot.data), snapshot.index


def _short(command: Command) -> str:
    return f"{command!r}"[:160]
