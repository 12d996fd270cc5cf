"""Bugs in elections, fencing and reports: which broker leads, is fenced, or is deposed (R6, R10, R14, M3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec.structs import replace

from simulator.mutations.plant import mutation, patched
from tidelog_broker.core.metadata import eligibility, membership
from tidelog_broker.core.metadata.controller.liveness import Sessions


@mutation("R6")
def anybody_is_elected() -> Iterator[None]:
    from tidelog_broker.core.metadata.decisions import elections

    def careless(image: Any, partition: Any, *, without: Any = (), deprioritized: Any = None) -> list[int]:
        return [
            broker
            for broker in partition.replicas
            if broker in image.brokers and not image.brokers[broker].fenced and broker not in without
        ]

    from tidelog_broker.core.metadata import partition_change

    def after(stream: Any, partition: Any, change: Any, feature_level: int) -> Any:
        if isinstance(change.leader, int) and change.leader not in (*partition.isr, *partition.eligible):
            partition = replace(partition, isr=(*partition.isr, change.leader))
        return after_change(stream, partition, change, feature_level)

    after_change = partition_change.after_change
    with (
        patched((elections, "candidates", careless)),
        mock.patch("tidelog_broker.core.metadata.apply.after_change", after),
    ):
        yield


@mutation("R6")
def eligibility_does_not_end_when_the_isr_is_whole() -> Iterator[None]:
    original = eligibility.with_isr

    def sticky(stream: Any, partition: Any, isr: Any) -> Any:
        after = original(stream, partition, isr)
        clean = dict.fromkeys((*partition.eligible, *partition.isr))
        return replace(after, eligible=tuple(broker for broker in clean if broker not in isr))

    with patched((eligibility, "with_isr", sticky)):
        yield


@mutation("R6", "small ISRs")
def eligibility_outlives_a_lower_minimum() -> Iterator[None]:
    with patched((eligibility, "reconfigured", lambda stream, partition: partition)):
        yield


@mutation("R6", "lost disks")
def a_new_directory_is_taken_for_the_old_one() -> Iterator[None]:
    original = membership._restarted

    def trusting(stream: Any, partition: Any, broker: Any, new_disk: bool, found: Any) -> Any:
        return original(stream, partition, broker, False, found)

    with patched((membership, "_restarted", trusting)):
        yield


@mutation("R6")
def a_suspect_replica_stays_in_the_isr() -> Iterator[None]:
    original = membership._restarted

    def trusting(stream: Any, partition: Any, broker: Any, new_disk: bool, found: Any) -> Any:
        return original(stream, partition, broker, new_disk, None)

    with patched((membership, "_restarted", trusting)):
        yield


@mutation("R10")
def a_restarted_leader_keeps_its_epoch() -> Iterator[None]:
    def lenient(stream: Any, partition: Any, broker: Any, new_disk: bool, found: Any) -> Any:
        if partition.leader == broker.id and not new_disk and found is None:
            return partition
        return original(stream, partition, broker, new_disk, found)

    original = membership._restarted
    with patched((membership, "_restarted", lenient)):
        yield


@mutation("M3", "stops")
def a_new_controller_grants_nobody_a_session() -> Iterator[None]:
    def strict(self: Sessions, image: Any, now_ms: int) -> list[int]:
        late = [
            broker.id
            for broker in image.brokers.values()
            if not broker.fenced
            and (heard := self._of(broker)) is not None
            and heard.granted
            and now_ms - heard.at_ms >= 100
        ]
        return late or original(self, image, now_ms)

    original = Sessions.expired
    with patched((Sessions, "expired", strict)):
        yield


@mutation("R14")
def one_report_is_enough() -> Iterator[None]:
    from tidelog_broker.core.metadata.controller import reports

    def anyone(partition: Any, reporters: set[int]) -> bool:
        return any(member in reporters for member in partition.isr if member != partition.leader)

    with patched((reports, "_is_majority", anyone)):
        yield
