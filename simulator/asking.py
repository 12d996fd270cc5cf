"""What a simulated broker asks of the controller: it registers, is heard, proposes, reports.

It asks whom it takes for the leader of the quorum, and somebody else if nothing comes back. Neighbours:
`controlling` decides, `requests` are the words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulator.requests import (
    ChangeIsr,
    Confirm,
    Current,
    Denied,
    Done,
    Heartbeat,
    Register,
    Report,
    Request,
    Response,
    Settled,
)
from simulator.world import MS
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.handovers import Led
from tidelog_broker.core.metadata.isr_changes import IsrProposal
from tidelog_broker.core.metadata.registration import Registration
from tidelog_broker.core.metadata.reports import Evidence

if TYPE_CHECKING:
    from simulator.broker import Broker
    from simulator.quorum import Quorum

ASK_US: Final = 100 * MS
"""After so long without an answer a request goes to another broker."""

Answered = Callable[[Response], None]


class Asking:
    """See the module. Of one run."""

    def __init__(self, broker: Broker, quorums: dict[int, Quorum], cluster_id: bytes) -> None:
        self._broker = broker
        self._quorums = quorums
        self._cluster_id = cluster_id

    def ask(self, request: Request, answered: Answered, *, once: bool = False) -> None:
        """Asks until there is a decision; with `once` a single time, answered or not."""
        broker = self._broker
        target = self._controller_of()
        done = [False]

        def deliver() -> None:
            quorum = self._quorums.get(target)
            if quorum is not None:
                quorum.ask(
                    request, lambda response: broker.network.send(target, broker.id, came_with(response))
                )

        def came_with(response: Response) -> Callable[[], None]:
            return lambda: came(response)

        def came(response: Response) -> None:
            if done[0]:
                return
            done[0] = True
            if isinstance(response, Done | Denied | Current):
                answered(response)
            elif not once:
                broker.after(broker.rng.randint(20 * MS, ASK_US), lambda: self.ask(request, answered))

        def silent() -> None:
            if not done[0]:
                done[0] = True
                self.ask(request, answered)

        broker.network.send(broker.id, target, deliver)
        if not once:
            broker.after(ASK_US * 3, silent)

    def _controller_of(self) -> int:
        broker = self._broker
        leader = broker.quorum.node.leader
        if leader is not None and leader.broker_id in broker.others:
            return leader.broker_id
        return broker.rng.choice(sorted(broker.others))

    # --- what it asks

    def register(self) -> None:
        broker = self._broker

        def answered(response: Response) -> None:
            if isinstance(response, Denied):
                broker.world.tell(f"broker {broker.id} may not register: {response.reason}")

        suspects, lost = broker.hosted.confess()
        asked = Registration(
            cluster_id=self._cluster_id,
            broker_id=broker.id,
            incarnation=broker.incarnation,
            directory_id=broker.directory_id,
            starts=broker.starts,
            suspects=suspects,
            lost=lost,
        )
        self.ask(Register(asked), answered)

    def heartbeat(self) -> None:
        broker = self._broker
        if not broker.registered:
            return

        def answered(response: Response) -> None:
            if isinstance(response, Done):
                broker.settling.wished(response.wished)
            else:
                self.register()

        damaged = tuple(
            ReplicaName(*replica.key) for replica in broker.replicas.values() if replica.log.damaged
        )
        self.ask(Heartbeat(broker.id, broker.incarnation, broker.settling.done, damaged), answered, once=True)

    def propose_isr(self, proposal: IsrProposal) -> None:
        """Whatever the answer, the image decides (R4)."""
        broker = self._broker
        self.ask(ChangeIsr(proposal), lambda response: None, once=True)
        if broker.rng.random() < broker.late_copies:
            late = broker.rng.randint(10 * MS, 3000 * MS)
            broker.after(late, lambda: self.ask(ChangeIsr(proposal), lambda response: None, once=True))

    def report(self, reported: int, evidence: Evidence) -> None:
        """R14."""
        broker = self._broker
        known = broker.image.brokers.get(reported)
        if known is not None and broker.registered:
            broker.world.tell(f"broker {broker.id} reports {reported}: {evidence.value}")
            broker.checks.reported(broker.id, known.incarnation, evidence, broker.world.now)
            request = Report(broker.id, broker.incarnation, reported, known.incarnation, evidence)
            self.ask(request, lambda response: None, once=True)

    def settled(self, led: tuple[Led, ...]) -> None:
        """N5."""
        broker = self._broker
        self.ask(Settled(broker.id, broker.incarnation, led), lambda response: None, once=True)

    def confirm(self, confirmed: Callable[[], None]) -> None:
        """Calls back once the image here has everything that is committed by now (M5)."""
        broker = self._broker

        def answered(response: Response) -> None:
            if isinstance(response, Current):
                wait(response.entry)

        def wait(index: int) -> None:
            if broker.quorum.applied >= index:
                confirmed()
            else:
                broker.after(20 * MS, lambda: wait(index))

        self.ask(Confirm(), answered)
