"""The commands that the controller makes without a request, the most urgent first.

At every tick, and whenever the image has changed, the driver of the controller takes the
next command, proposes it, and repeats this with the image after it, until there is no command.
Neighbours: `liveness` and `reports` say which brokers failed, `deprioritized` which should not lead,
`decisions.elections` and `decisions.reassignment` make the changes, `handovers` says which changes must wait.
"""

from __future__ import annotations

from msgspec.structs import replace

from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import ChangeBroker, ChangePartitions, Command, PartitionChange
from tidelog_broker.core.metadata.controller.deprioritized import DeprioritizedLeaders
from tidelog_broker.core.metadata.controller.handovers import SETTLING_MAX, Handovers
from tidelog_broker.core.metadata.controller.liveness import Sessions
from tidelog_broker.core.metadata.controller.reports import FailureReports
from tidelog_broker.core.metadata.decisions.elections import (
    CHANGES_MAX,
    DeprioritizedFor,
    PartitionKey,
    elect,
    hand_over,
    none_deprioritized,
    successor,
)
from tidelog_broker.core.metadata.decisions.reassignment import finished
from tidelog_broker.core.metadata.eligibility import is_below_minimum
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, StreamImage
from tidelog_broker.core.metadata.persistent import PersistentMap


class Upkeep:
    """The upkeep of one controller; a new controller begins with a new one (M3)."""

    def __init__(
        self,
        sessions: Sessions,
        reports: FailureReports,
        deprioritized: DeprioritizedLeaders,
        handovers: Handovers,
    ) -> None:
        self.sessions = sessions
        self.reports = reports
        self.deprioritized = deprioritized
        self.handovers = handovers
        self._settled: tuple[dict[int, BrokerImage], PersistentMap[bytes, StreamImage]] | None = None
        """Brokers and streams of an image that needed no command: while they are the same objects,
        the partitions need no other pass."""

    def __repr__(self) -> str:
        return f"<Upkeep {self.sessions!r} {self.reports!r} {self.deprioritized!r}>"

    def next_command(self, image: ClusterImage, now_ms: int) -> Command | None:
        """The next command; None: nothing must be done. The command counts as proposed: if the caller drops
        it, only a back-off begins without need (`FailureReports.elected`)."""
        self.sessions.look(image, now_ms)
        deprioritized = self.deprioritized.of
        for broker in self.sessions.expired(image, now_ms):
            return fence(image, broker, deprioritized)
        by_report = elections_by_report(image, self.reports, self.sessions, now_ms, deprioritized)
        if by_report:
            self.reports.elected(
                image, [(change.stream_id, change.partition) for change in by_report], now_ms
            )
            return ChangePartitions(by_report)
        for broker in self.sessions.returned(image, now_ms):
            return unfence(image, broker, deprioritized)
        moves = self._due(image, self.deprioritized.moves(image), now_ms)
        if moves:
            return ChangePartitions(moves)
        if self._settled is not None and (
            self._settled[0] is image.brokers and self._settled[1] is image.streams
        ):
            return None
        changes = elect(image, deprioritized=deprioritized)
        if changes:
            return ChangePartitions(changes)
        planned = (*_handed_over(image, deprioritized), *_finished(image))
        changes = self._due(image, _one_each(planned), now_ms)
        if changes:
            return ChangePartitions(changes)
        if not planned:
            self._settled = (image.brokers, image.streams)
        return None

    def _due(
        self, image: ClusterImage, planned: tuple[PartitionChange, ...], now_ms: int
    ) -> tuple[PartitionChange, ...]:
        """The planned changes that may be made now."""
        return self.handovers.due(image, planned, now_ms) if planned else ()


def fence(
    image: ClusterImage, broker: int, deprioritized: DeprioritizedFor = none_deprioritized
) -> ChangeBroker:
    """Fences `broker`: it leaves every ISR and leadership, and others are elected, in one entry (R14, M4)."""
    command = ChangeBroker(broker, image.brokers[broker].incarnation, fenced=True)
    after = apply(image, command, image.version + 1)
    return replace(command, changes=elect(after, deprioritized=deprioritized))


def unfence(
    image: ClusterImage, broker: int, deprioritized: DeprioritizedFor = none_deprioritized
) -> ChangeBroker:
    """Ends fencing: the broker sends heartbeats again, and leads in the same entry what only it can lead."""
    command = ChangeBroker(broker, image.brokers[broker].incarnation, fenced=False)
    after = apply(image, command, image.version + 1)
    return replace(command, changes=elect(after, deprioritized=deprioritized))


def stop(
    image: ClusterImage, broker: int, incarnation: bytes, deprioritized: DeprioritizedFor = none_deprioritized
) -> ChangeBroker | ChangePartitions | None:
    """A heartbeat reports that the broker stops and has settled its leaderships: other members lead now.

    None: no other member can lead any of them, or another run of the broker is registered. Leaderships that
    cannot move now move when other replicas have caught up (`Upkeep`).
    """
    known = image.brokers.get(broker)
    if known is None or known.incarnation != incarnation:
        return None
    if known.stopping:
        changes = hand_over(image, broker, deprioritized=deprioritized)
        return ChangePartitions(changes) if changes else None
    command = ChangeBroker(broker, incarnation, stopping=True)
    after = apply(image, command, image.version + 1)
    return replace(command, changes=hand_over(after, broker, deprioritized=deprioritized))


def elections_by_report(
    image: ClusterImage,
    reports: FailureReports,
    sessions: Sessions,
    now_ms: int,
    deprioritized: DeprioritizedFor = none_deprioritized,
) -> tuple[PartitionChange, ...]:
    """R14: another member of the ISR leads; the reported broker leaves the ISR if the minimum stays met."""
    changes: list[PartitionChange] = []
    for stream_id, number in reports.due(image, sessions, now_ms)[:CHANGES_MAX]:
        stream = image.streams[stream_id]
        partition = stream.partitions[number]
        next_leader = successor(image, partition, deprioritized=deprioritized(image, (stream_id, number)))
        if next_leader is None:
            continue
        rest = tuple(member for member in partition.isr if member != partition.leader)
        if is_below_minimum(stream, rest):
            changes.append(PartitionChange(stream_id, number, leader=next_leader))
        else:
            changes.append(PartitionChange(stream_id, number, isr=rest, leader=next_leader))
    return tuple(changes)


def _handed_over(image: ClusterImage, deprioritized: DeprioritizedFor) -> tuple[PartitionChange, ...]:
    changes: list[PartitionChange] = []
    for broker in image.brokers.values():
        if broker.stopping and not broker.fenced:
            share = image.shares.get(broker.id)
            if share is not None and share.leaders:
                # No more than it is asked to settle at a time: this runs again and again meanwhile.
                changes += hand_over(image, broker.id, deprioritized=deprioritized, changes_max=SETTLING_MAX)
    return tuple(changes[:CHANGES_MAX])


def _one_each(changes: tuple[PartitionChange, ...]) -> tuple[PartitionChange, ...]:
    """The first change of each partition: the next ones are decided on the image after it."""
    found: dict[PartitionKey, PartitionChange] = {}
    for change in changes:
        found.setdefault((change.stream_id, change.partition), change)
    return tuple(found.values())[:CHANGES_MAX]


def _finished(image: ClusterImage) -> tuple[PartitionChange, ...]:
    changes: list[PartitionChange] = []
    for stream in image.streams.values():
        for number, partition in enumerate(stream.partitions):
            if partition.reassigning:
                change = finished(image, stream, number, partition)
                if change is not None:
                    changes.append(change)
    return tuple(changes[:CHANGES_MAX])
