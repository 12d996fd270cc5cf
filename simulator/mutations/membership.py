"""Bugs in the members of the ISR (R4, R10), and in reassignments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from simulator.mutations.plant import mutation, patched
from tidelog_broker.core.metadata.decisions import isr_changes
from tidelog_broker.core.replication import isr_changes as isr_proposals
from tidelog_broker.core.replication import leader_state
from tidelog_broker.core.replication import membership as isr_membership
from tidelog_broker.core.replication.leader_state import LeaderState


@mutation("R4")
def a_follower_joins_before_it_has_the_start_of_the_epoch() -> Iterator[None]:
    def may_join(progress: Any, broker: Any, high_watermark: int, epoch_start: int, log_start: int) -> bool:
        counts = isr_membership.counts(progress, broker)
        return counts and bool(broker.may_join) and progress.durable >= high_watermark

    with patched((isr_proposals, "may_join", may_join)):
        yield


@mutation("R4")
def a_follower_joins_though_it_lacks_what_is_committed() -> Iterator[None]:
    def may_join(progress: Any, broker: Any, high_watermark: int, epoch_start: int, log_start: int) -> bool:
        return isr_membership.counts(progress, broker) and bool(broker.may_join)

    with patched((isr_proposals, "may_join", may_join)):
        yield


@mutation("R4", "flapping")
def the_controller_takes_any_partition_epoch() -> Iterator[None]:
    original = isr_changes._refusal

    def lenient(image: Any, partition: Any, proposal: Any) -> Any:
        return original(image, partition, proposal._replace(partition_epoch=partition.partition_epoch))

    with patched((isr_changes, "_refusal", lenient)):
        yield


@mutation("R4, R10", "unanswered heartbeats")
def a_stale_incarnation_joins_the_isr() -> Iterator[None]:
    def lenient(image: Any, partition: Any, proposal: Any) -> Any:
        current = tuple(
            member._replace(incarnation=image.brokers[member.broker].incarnation)
            for member in proposal.isr
            if member.broker in image.brokers
        )
        proposer = proposal.proposer
        return original(
            image,
            partition,
            proposal._replace(
                isr=current,
                proposer=proposer._replace(incarnation=image.brokers[proposer.broker].incarnation),
            ),
        )

    original = isr_changes._ineligible
    with patched(
        (isr_changes, "_ineligible", lenient),
        (LeaderState, "is_current", lambda self, broker, incarnation: True),
        (isr_membership, "counts", lambda progress, broker: progress.matching),
        (leader_state, "counts", lambda progress, broker: progress.matching),
    ):
        yield


@mutation("R4", "flapping")
def a_fenced_broker_joins_the_isr() -> Iterator[None]:
    from tidelog_broker.core.metadata.image import BrokerImage

    with patched((BrokerImage, "may_join", property(lambda self: True))):
        yield


@mutation("M, KIP-455", "joins")
def a_reassignment_ends_before_the_new_replica_has_joined() -> Iterator[None]:
    from tidelog_broker.core.metadata.controller import upkeep
    from tidelog_broker.core.metadata.decisions import reassignment

    finished = reassignment.finished

    def hasty(image: Any, stream: Any, number: int, partition: Any) -> Any:
        return finished(image, stream, number, replace(partition, adding=()))

    with patched((upkeep, "finished", hasty)):
        yield
