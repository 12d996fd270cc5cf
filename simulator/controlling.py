"""What the leader of the simulated metadata quorum does: it decides, proposes, and answers who asked.

The decisions are `core.metadata`'s. Neighbours: `quorum` performs Raft, `requests` are what it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, assert_never

from simulator.requests import (
    ChangeIsr,
    Confirm,
    Current,
    Decided,
    Denied,
    Done,
    Heartbeat,
    LoseReplica,
    NotNow,
    Register,
    Report,
    Request,
    Response,
    Settled,
)
from simulator.world import MS, World
from tidelog.errors import TidelogError
from tidelog_broker.core.metadata import isr_changes, quorum_plan, registration
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import Command, ReplicaName, encode_command
from tidelog_broker.core.metadata.handovers import Handovers, Led
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.liveness import Sessions
from tidelog_broker.core.metadata.reluctance import Reluctance, sound_heir
from tidelog_broker.core.metadata.reports import FailureReports
from tidelog_broker.core.metadata.upkeep import Upkeep, stop
from tidelog_broker.core.raft.errors import Busy, NotLeader
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.ready import Ready
from tidelog_broker.model import Entry, Voter

if TYPE_CHECKING:
    from simulator.checks import Checks
    from simulator.quorum import Quorum

COMMANDS_AT_ONCE_MAX: Final = 20
"""Of the controller's own accord, at one tick."""

CAUGHT_UP_ENTRIES: Final = 5
"""A learner that lacks no more can vote."""

Answer = Callable[[Response], None]


class Controller:
    """What a leader of the quorum keeps for the length of its term."""

    def __init__(self, term: int, tip: ClusterImage, sessions: Sessions) -> None:
        self.term = term
        self.tip = tip
        """The image after every entry of the log."""
        self.sessions = sessions
        self.reluctance = Reluctance()
        self.handovers = Handovers()
        self.upkeep = Upkeep(sessions, FailureReports(), self.reluctance, self.handovers)


class Controlling:
    """See the module. Of one run of a broker."""

    def __init__(self, quorum: Quorum, world: World, checks: Checks, voters_wanted: int) -> None:
        self._quorum = quorum
        self._world = world
        self._checks = checks
        self._voters_wanted = voters_wanted
        self.controller: Controller | None = None
        self._waiting: dict[int, tuple[int, list[Answer]]] = {}
        """By index: the term of the proposal, and who waits for it."""
        self._questions: dict[int, Answer] = {}
        """By token: who waits for a majority (ReadIndex)."""
        self._tokens = 0

    # --- what Raft says

    @property
    def controls(self) -> bool:
        """It leads, and knows that it does: an entry of its term is committed."""
        node = self._quorum.node
        return self.controller is not None and node.log.term(node.log.commit) == node.term

    def role_changed(self, tip: Callable[[], ClusterImage]) -> None:
        """Perhaps it leads from now on, or no longer; `tip` is the image after every entry."""
        node = self._quorum.node
        if self.controller is not None and (not node.leads or self.controller.term != node.term):
            # Who waits is not answered, as if the answer was lost: the entries may be committed yet.
            self.controller = None
            self._waiting.clear()
            self._questions.clear()
        if node.leads and self.controller is None:
            self._checks.controls(self._quorum.me, node.term, node.log)
            self.controller = Controller(node.term, tip(), Sessions())

    def applied(self, entry: Entry) -> None:
        waiting = self._waiting.pop(entry.index, None)
        if waiting is not None:
            term, answers = waiting
            for answer in answers:
                answer(Done() if term == entry.term else NotNow("another leader's entry took its place"))

    def answered(self, ready: Ready) -> None:
        """Questions of which a majority has proved by now that this node led when they came."""
        for read in ready.reads:
            answer = self._questions.pop(read.token, None)
            if answer is not None:
                answer(Current(read.index))
        for token in ready.failed_reads:
            answer = self._questions.pop(token, None)
            if answer is not None:
                answer(NotNow("not the leader any more"))

    # --- of its own accord

    def control(self) -> None:
        controller = self.controller
        if controller is None or not self.controls:
            return
        now_ms = self._world.now // MS
        if controller.reluctance.moves(controller.tip):
            self._checks.mark("2c a damaged leader hands over")
        for _ in range(COMMANDS_AT_ONCE_MAX):
            command = controller.upkeep.next_command(controller.tip, now_ms)
            if command is None or not self._propose(controller, command):
                break
            self._world.tell(f"controller {self._quorum.me.broker_id}: {_short(command)}")
        self._plan_voters(controller)

    def decide(self, decision: Callable[[ClusterImage], Command | None]) -> bool:
        """Proposes what somebody decides who gives commands; whether there was anything to propose."""
        controller = self.controller
        if controller is None or not self.controls:
            return False
        command = decision(controller.tip)
        return command is not None and self._propose(controller, command)

    def _plan_voters(self, controller: Controller) -> None:
        node = self._quorum.node
        configuration = node.configuration
        planned = quorum_plan.next_configuration(
            configuration,
            controller.tip,
            self._caught_up(),
            self._voters_wanted,
            leader=self._quorum.me.broker_id,
        )
        if planned is not None and node.leads:
            try:
                node.configure(planned)
            except Busy:
                return
            if len(planned.voters) > len(configuration.voters):
                self._checks.mark("M1 a learner votes")
            if len(planned.voters) < len(configuration.voters):
                self._checks.mark("M2 a voter goes")
            voters = [voter.broker_id for voter in planned.voters]
            learners = [voter.broker_id for voter in planned.learners]
            self._world.tell(f"controller {self._quorum.me.broker_id}: voters {voters} learners {learners}")
            self._quorum.pump()

    def _caught_up(self) -> dict[Voter, bool]:
        role = self._quorum.node.role
        if not isinstance(role, Leader):
            return {}
        commit = self._quorum.node.log.commit
        return {
            peer: progress.heard and progress.match >= commit - CAUGHT_UP_ENTRIES
            for peer, progress in role.progress.items()
        }

    def _propose(self, controller: Controller, command: Command, answer: Answer | None = None) -> bool:
        try:
            index = self._quorum.node.propose([encode_command(command)])
        except (NotLeader, Busy):
            return False
        controller.tip = apply(controller.tip, command, index)
        if answer is not None:
            self._waiting[index] = (self._quorum.node.term, [answer])
        self._quorum.pump()
        return True

    def ask(self, request: Request, answer: Answer) -> None:
        """Somebody asks the controller; `answer` may never be called."""
        controller = self.controller
        if controller is None or not self.controls:
            answer(NotNow("not the controller"))
            return
        if isinstance(request, Confirm):
            self._confirm(answer)
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
            self._after_everything(Done(_wished(controller, request, now_ms)), answer)
        elif not self._propose(controller, command, answer):
            answer(NotNow("not the controller"))
        else:
            self._world.tell(f"controller {self._quorum.me.broker_id}: {_short(command)}")

    def _confirm(self, answer: Answer) -> None:
        self._tokens += 1
        self._questions[self._tokens] = answer
        try:
            self._quorum.node.read(self._tokens)
        except (NotLeader, Busy):
            del self._questions[self._tokens]
            answer(NotNow("not the leader any more"))
        self._quorum.pump()

    def _after_everything(self, response: Response, answer: Answer) -> None:
        log = self._quorum.node.log
        index = log.last_index
        if index <= self._quorum.applied:
            answer(response)
            return

        def passed_on(result: Response) -> None:
            answer(response if isinstance(result, Done) else result)

        term = log.term(index)
        assert term is not None
        self._waiting.setdefault(index, (term, []))[1].append(passed_on)

    def _decide(
        self, controller: Controller, request: Decided, now_ms: int
    ) -> Command | Denied | NotNow | None:
        tip, sessions = controller.tip, controller.sessions
        match request:
            case Register(asked):
                known = tip.brokers.get(asked.broker_id)
                if known is not None and known.directory_id != asked.directory_id:
                    self._checks.mark("R6 another directory")
                return registration.register(tip, asked, sessions, now_ms, controller.reluctance.of)
            case Heartbeat(broker, incarnation, stopping, damaged):
                if not sessions.heard(tip, broker, incarnation, now_ms):
                    return Denied("another run is registered")
                controller.reluctance.heard(broker, incarnation, damaged)
                for name in damaged:
                    self._checks.damaged(incarnation, name)
                return stop(tip, broker, incarnation, controller.reluctance.of) if stopping else None
            case Settled(broker, incarnation, settled):
                known = tip.brokers.get(broker)
                if known is not None and known.incarnation == incarnation:
                    controller.handovers.settled(broker, settled, now_ms)
                    self.control()
                return None
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
                self.control()
                return None
            case ChangeIsr(proposal):
                return self._change_isr(controller, proposal)
            case LoseReplica(broker, incarnation, name, spare):
                if spare and not _has_others(tip, broker, name):
                    return NotNow("nobody else is in sync")
                if spare and _hands_over_first(controller, broker, name):
                    return NotNow("another leads it first")
                return registration.lose(tip, broker, incarnation, (name,), controller.reluctance.of)
            case _:
                assert_never(request)

    def _change_isr(
        self, controller: Controller, proposal: isr_changes.IsrProposal
    ) -> Command | Denied | NotNow | None:
        command, (result,) = isr_changes.change_isr(controller.tip, [proposal])
        if isinstance(result, isr_changes.Accepted):
            self._checks.accepted(controller.tip, proposal)
            return command
        if result.refusal.ask_again:
            return NotNow(result.reason)
        if command is not None:
            # The refusal itself is an entry; the proposer hears of it when that is committed.
            self._propose(controller, command)
        return Denied(result.reason)


def _wished(controller: Controller, request: Decided, now_ms: int) -> tuple[Led, ...]:
    """With the answer to a heartbeat goes what its broker is to settle."""
    if not isinstance(request, Heartbeat):
        return ()
    return controller.handovers.wished(controller.tip, request.broker, now_ms)


def _hands_over_first(controller: Controller, broker: int, name: ReplicaName) -> bool:
    """It leads, and somebody without damage can, and will once its next heartbeat has come (R6)."""
    key = (name.stream_id, name.partition)
    partition = controller.tip.partition(*key)
    if partition is None or partition.leader != broker:
        return False
    unwilling = controller.reluctance.of(controller.tip, key)
    return sound_heir(controller.tip, partition, unwilling) is not None


def _has_others(image: ClusterImage, broker: int, name: ReplicaName) -> bool:
    partition = image.partition(name.stream_id, name.partition)
    return partition is not None and any(member != broker for member in partition.isr)


def _short(command: Command) -> str:
    return f"{command!r}"[:160]
