"""R4: leaders propose an ISR, and the controller compares and sets.

A proposal names the partition epoch that its leader saw; a proposal with an older epoch has
lost against another change. The leader counts every proposed member until *the image*
shows a later partition epoch: from then on no copy of the proposal that the network may
still deliver can be accepted (R3). No refusal ends this sooner: a copy that is refused as
stale may be the second one, and the first copy made it stale.

A proposal with a member that may not join raises the partition epoch without another change, so that the
image shows a later epoch. If it were only refused, the leader would have
to count that member as long as nothing else changes: a fenced broker returns in the
same incarnation, and a late copy would be accepted then.

The results are sent once the returned entry and every entry before it are committed.
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
    """A proposed member of an ISR, or the proposing leader."""

    broker: int
    incarnation: bytes
    """The run of the broker from which the leader has messages."""
    assignment: int = 0
    """The assignment of the replica from which the leader has messages (R16)."""


class IsrProposal(NamedTuple):
    """A proposed ISR of a partition."""

    proposer: Member
    """The leader, as far as the proposer knows."""
    stream_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    """The epoch that the leader saw."""
    isr: tuple[Member, ...]
    """The members, including the leader."""


class Refusal(StrEnum):
    """Why the controller refuses a proposal."""

    FENCED = "fenced"
    """This run of the proposer does not lead in this epoch; its image will show that."""
    STALE = "stale"
    """The partition has changed since, perhaps by an earlier copy of the proposal; the image will show it."""
    INELIGIBLE = "ineligible"
    """A member is fenced or stopping, has no replica, or is of another run or another assignment than
    in the image. The image will show a later partition epoch, and no other change."""
    UNKNOWN = "unknown"
    """The controller has no such partition: it is deleted, or this controller's image is old. Propose
    again."""
    AHEAD = "ahead"
    """The leader has a newer image than this controller, which was deposed. Propose again."""

    @property
    def ask_again(self) -> bool:
        """The refusal decides nothing, and the image may never show it. After the others, wait for the
        image."""
        return self in (Refusal.UNKNOWN, Refusal.AHEAD)


class Accepted(NamedTuple):
    """The proposal becomes the ISR."""

    partition_epoch: int
    """The partition's epoch, once the image shows it."""


class Refused(NamedTuple):
    """The proposal changes nothing, or only the partition epoch."""

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
        return Refused(
            Refusal.INELIGIBLE, f"the proposed members {named} must include the leader, and no broker twice"
        )
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
    """The ISR in the order of the replicas. If it completes a reassignment, that ends in the same entry.

    If the end removes the leader, the leader must settle first: then `controller.upkeep` ends it later.
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
