"""R4: leaders propose who is in sync, and the controller compares and sets.

A proposal names the partition epoch that its leader saw; one that names an older epoch has
lost against another change. The leader counts everybody that it proposed until *the image*
shows a later partition epoch: from then on no copy of the proposal that the network may
still deliver can be accepted (R3). No refusal ends it sooner. A copy that is refused as
stale may be the second one, and the first one what made it stale.

So that the image does show it, a proposal that names somebody who may not join takes the
partition epoch forward without another change. Were it only refused, the leader would have
to count that member for as long as nothing else changes: a fenced broker comes back in the
same incarnation, and a late copy would be accepted then.

Results are answered once the returned entry is committed and every entry before it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from tidelog_broker.core.metadata.commands import ChangePartitions, PartitionChange
from tidelog_broker.core.metadata.decisions.reassignment import finished
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.metadata.partition_change import after_change


class Member(NamedTuple):
    broker: int
    incarnation: bytes
    """The run of the broker that the leader has heard from."""
    assignment: int = 0
    """The assignment of the replica that the leader has heard from (R16)."""


class IsrProposal(NamedTuple):
    """What the ISR of a partition shall be."""

    proposer: Member
    """Who leads, as it believes."""
    stream_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    """What the leader saw."""
    isr: tuple[Member, ...]
    """The leader among them."""


class Refusal(StrEnum):
    FENCED = "fenced"
    """This run of the proposer does not lead in this epoch; its image will say so."""
    STALE = "stale"
    """The partition has changed since, perhaps by an earlier copy of the proposal; the image will say."""
    INELIGIBLE = "ineligible"
    """A member is fenced, stopping, no replica, or of another run of its broker or another assignment than
    those of the image. The image will show a later partition epoch, and nothing else changed."""
    UNKNOWN = "unknown"
    """There is no such partition here: it is deleted, or this controller is behind. Ask again."""
    AHEAD = "ahead"
    """The leader has seen more than this controller, which was deposed. Ask again."""

    @property
    def ask_again(self) -> bool:
        """It decides nothing: the image may show nothing of it. After the others, wait for the image."""
        return self in (Refusal.UNKNOWN, Refusal.AHEAD)


class Accepted(NamedTuple):
    partition_epoch: int
    """The partition's, once the image shows it."""


class Refused(NamedTuple):
    refusal: Refusal
    reason: str
    """A sentence for logs."""


Result = Accepted | Refused


def change_isr(
    image: ClusterImage, proposals: Sequence[IsrProposal]
) -> tuple[ChangePartitions | None, tuple[Result, ...]]:
    """The entry (None: nothing changes) and a result for each proposal, in their order."""
    changes: list[PartitionChange] = []
    results: list[Result] = []
    newer: dict[tuple[bytes, int], PartitionImage] = {}
    for proposal in proposals:
        key = (proposal.stream_id, proposal.partition)
        stream, found = image.streams.find(proposal.stream_id), image.partition(*key)
        if stream is None or found is None:
            results.append(
                Refused(Refusal.UNKNOWN, f"partition {key[1]} of {key[0].hex()} is not known here")
            )
            continue
        partition = newer.get(key, found)
        refused = _refusal(image, partition, proposal)
        if refused is None:
            change = _change(image, stream, partition, proposal)
        elif refused.refusal is Refusal.INELIGIBLE:
            change = PartitionChange(*key)
        else:
            results.append(refused)
            continue
        changes.append(change)
        newer[key] = after_change(stream, partition, change, image.feature_level)
        results.append(refused or Accepted(newer[key].partition_epoch))
    return ChangePartitions(tuple(changes)) if changes else None, tuple(results)


def _refusal(image: ClusterImage, partition: PartitionImage, proposal: IsrProposal) -> Refused | None:
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return Refused(
            Refusal.AHEAD,
            f"the proposal is of leader epoch {proposal.leader_epoch} and partition epoch "
            f"{proposal.partition_epoch}, known here are {partition.leader_epoch} and "
            f"{partition.partition_epoch}",
        )
    leader = image.brokers.get(proposal.proposer.broker)
    run = (proposal.proposer.broker, proposal.proposer.incarnation)
    leads = leader is not None and (partition.leader, leader.incarnation) == run
    if proposal.leader_epoch < partition.leader_epoch or not leads:
        return Refused(
            Refusal.FENCED,
            f"this run of broker {proposal.proposer.broker} does not lead in epoch {proposal.leader_epoch}: "
            f"{partition.leader} does in {partition.leader_epoch}",
        )
    if proposal.partition_epoch < partition.partition_epoch:
        return Refused(
            Refusal.STALE,
            f"the partition is at epoch {partition.partition_epoch}, not at {proposal.partition_epoch}",
        )
    return _ineligible(image, partition, proposal)


def _ineligible(image: ClusterImage, partition: PartitionImage, proposal: IsrProposal) -> Refused | None:
    named = [member.broker for member in proposal.isr]
    runs = [(member.broker, member.incarnation) for member in proposal.isr]
    leader = (proposal.proposer.broker, proposal.proposer.incarnation)
    if leader not in runs or len(set(named)) != len(named):
        return Refused(Refusal.INELIGIBLE, f"the leader has to be among {named}, and nobody twice")
    for member in proposal.isr:
        broker = image.brokers.get(member.broker)
        if broker is None or member.broker not in partition.replicas:
            return Refused(Refusal.INELIGIBLE, f"broker {member.broker} has no replica of it")
        if broker.incarnation != member.incarnation:
            return Refused(Refusal.INELIGIBLE, f"broker {member.broker} was started since")
        if partition.assignment_of(member.broker) != member.assignment:
            return Refused(Refusal.INELIGIBLE, f"broker {member.broker} was given another replica since")
        if member.broker not in partition.isr and not broker.may_join:
            return Refused(Refusal.INELIGIBLE, f"broker {member.broker} is {broker.state.value}")
    return None


def _change(
    image: ClusterImage, stream: StreamImage, partition: PartitionImage, proposal: IsrProposal
) -> PartitionChange:
    """The ISR in the order of the replicas; the reassignment that it completes ends with it.

    Unless that takes the leader away, who is to settle first: `upkeep` ends it then.
    """
    named = {member.broker for member in proposal.isr}
    isr = tuple(broker for broker in partition.replicas if broker in named)
    change = PartitionChange(
        proposal.stream_id, proposal.partition, isr=UNSET if isr == partition.isr else isr
    )
    after = after_change(stream, partition, change, image.feature_level)
    end = finished(image, stream, proposal.partition, after)
    if end is None or end.leader is not UNSET:
        return change
    final: tuple[int, ...] | UnsetType = isr if end.isr is UNSET else end.isr
    return PartitionChange(
        proposal.stream_id,
        proposal.partition,
        replicas=end.replicas,
        adding=(),
        removing=(),
        isr=final,
    )
