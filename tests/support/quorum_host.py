"""A quorum without a broker around it: what the broker would be told is kept for the test."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.errors import Unavailable
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.controller.handovers import Led
from tidelog_broker.errors import BrokerError
from tidelog_broker.quorum.request_handler import ServeCall


async def refuse_calls(rpc: str, request: bytes) -> bytes:
    raise Unavailable("this broker serves no clients")


@dataclass(eq=False)
class RecordingHost:
    """A `QuorumHost`."""

    failures: list[BaseException] = field(default_factory=list)
    calls: ServeCall = refuse_calls
    """Serves what other brokers forward."""
    damaged: tuple[ReplicaName, ...] = ()
    ended: list[BrokerError] = field(default_factory=list)
    sessions: list[bool] = field(default_factory=list)
    requested: list[Led] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def end_run(self, error: BrokerError) -> None:
        self.ended.append(error)

    def session_changed(self, good: bool) -> None:
        self.sessions.append(good)

    def damaged_replicas(self) -> tuple[ReplicaName, ...]:
        return self.damaged

    def handovers_requested(self, leaderships: tuple[Led, ...]) -> None:
        self.requested += leaderships

    def peer_refused(self, broker: int) -> None:
        self.refused.append(broker)

    async def serve_call(self, rpc: str, request: bytes) -> bytes:
        return await self.calls(rpc, request)
