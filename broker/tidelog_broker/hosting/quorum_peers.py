"""Gives replication access to the other brokers and the controller, over the connections of the quorum.

Implements `replication.peers.Peers`: addresses, failure reports, and requests to the controller.
Neighbours: `broker` has the replicas, `quorum.quorum_controller` has the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog

from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal
from tidelog_broker.core.replication.times import DEFAULT_TIMES
from tidelog_broker.membership.wire import ChangeIsr, LoseReplicas
from tidelog_broker.peers.hello import ConnectionKind, Identity
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.tls.credentials import Credentials

log = structlog.get_logger(__name__)

PROPOSE_SECONDS_MAX: Final = DEFAULT_TIMES.proposal_repeat_ms / 1000
"""How long a request for an ISR change is tried; then the partition's leader repeats it anyway (R4)."""

LOSS_SECONDS_MAX: Final = 5.0
"""How long one try to report lost replicas to the controller may take."""

LOSS_PAUSE_SECONDS: Final = 0.5


class QuorumPeers:
    """Implements `Peers` over the connections of the quorum. Runs on one event loop."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._lost: dict[tuple[bytes, int], int] = {}
        """Assignments of replicas that were lost in this run, while the image does not show the loss yet."""
        self._telling: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<QuorumPeers asking={len(self._tasks)} lost={len(self._lost)}>"

    async def stop(self) -> None:
        tasks = [*self._tasks, *([] if self._telling is None else [self._telling])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- implements `replication.peers.Peers`

    def identity(self) -> Identity:
        return self._controller.transport.identity()

    @property
    def tls(self) -> Credentials | None:
        return self._controller.transport.tls

    def address(self, broker_id: int) -> tuple[str, int] | None:
        return self._controller.addresses.get(broker_id)

    def evidence(self, broker_id: int, run: bytes, evidence: Evidence | None) -> None:
        self._controller.transport.failure_reporter.update(broker_id, ConnectionKind.REPLICA, run, evidence)

    def refuses(self, broker_id: int) -> bool:
        return self._controller.transport.refuses(broker_id)

    def propose_isr(self, proposals: Sequence[IsrProposal]) -> None:
        self._do(self._propose(ChangeIsr(tuple(proposals))))

    def feature_level(self) -> int:
        return self._controller.image.feature_level

    def replica_lost(self, stream_id: bytes, partition: int, assignment: int, reason: str) -> None:
        log.debug("a replica is lost", stream=stream_id.hex(), partition=partition, reason=reason)
        self._lost[stream_id, partition] = assignment
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_of_losses())

    # --- asking the controller

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _propose(self, request: ChangeIsr) -> None:
        try:
            await self._controller.ask(request, PROPOSE_SECONDS_MAX)
        except TidelogError as error:
            # The image shows the outcome, and the leader asks again meanwhile (R4).
            log.debug("the controller did not take an ISR change", error=str(error))

    async def _tell_of_losses(self) -> None:
        """Reports lost replicas until the image shows that the cluster no longer counts on them (2c)."""
        while self._lost:
            me, run = self._controller.me.broker_id, self._controller.incarnation
            names = tuple(ReplicaName(*key, assignment) for key, assignment in sorted(self._lost.items()))
            try:
                await self._controller.ask(LoseReplicas(me, run, names), LOSS_SECONDS_MAX)
            except TidelogError as error:
                log.warning(
                    "the broker could not report lost replicas to the controller; it tries again",
                    error=str(error),
                )
            for key, assignment in list(self._lost.items()):
                placed = self._controller.image.partition(*key)
                if (
                    placed is None
                    or me not in (*placed.isr, *placed.eligible)
                    or placed.assignment_of(me) != assignment
                ):
                    del self._lost[key]
            if self._lost:
                await asyncio.sleep(LOSS_PAUSE_SECONDS)
        self._telling = None
