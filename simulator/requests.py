"""What simulated brokers ask of the controller, and its answers; between brokers, control messages."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.handovers import Led
from tidelog_broker.core.metadata.isr_changes import IsrProposal
from tidelog_broker.core.metadata.registration import Registration
from tidelog_broker.core.metadata.reports import Evidence


class Register(NamedTuple):
    registration: Registration


class Heartbeat(NamedTuple):
    broker: int
    incarnation: bytes
    stopping: bool
    damaged: tuple[ReplicaName, ...]


class Report(NamedTuple):
    """R14."""

    reporter: int
    reporter_run: bytes
    reported: int
    reported_run: bytes
    evidence: Evidence


class ChangeIsr(NamedTuple):
    proposal: IsrProposal


class LoseReplica(NamedTuple):
    """A log is set aside, or is to be."""

    broker: int
    incarnation: bytes
    name: ReplicaName
    spare: bool = False
    """Only if somebody else is in sync: it has damage, and is set aside once that is committed (2c)."""


class Settled(NamedTuple):
    """What was wished for is done (N5)."""

    broker: int
    incarnation: bytes
    settled: tuple[Led, ...]


class Confirm(NamedTuple):
    """ReadIndex: as of which entry is an image that has all that is committed by now (M5)?"""


Decided: TypeAlias = Register | Heartbeat | Report | ChangeIsr | LoseReplica | Settled
"""What the controller decides by the image."""
Request: TypeAlias = Decided | Confirm


class Done(NamedTuple):
    """What was asked for is committed, or was so already."""

    wished: tuple[Led, ...] = ()
    """To whom was heard: what it is to settle (N5)."""


class Denied(NamedTuple):
    """Definitely not, ever."""

    reason: str


class NotNow(NamedTuple):
    """Nothing was decided: ask again, perhaps somebody else."""

    reason: str


class Current(NamedTuple):
    """Whoever has applied this entry has everything that was committed when it asked."""

    entry: int


Response: TypeAlias = Done | Denied | NotNow | Current
