"""What several scenarios ask and claim of clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chaos.cluster import ClusterFailure
from chaos.harness import Harness
from chaos.load import IDEMPOTENT, READER, STEADY
from tidelog.model import ClusterDescription

SENTENCES_MAX: Final = 3
"""Errors of one kind that are quoted."""


def claim_no_errors(harness: Harness, writers: Iterable[str] = IDEMPOTENT) -> None:
    """None of these writers and no reader was told of anything."""
    for who in (*writers, STEADY.name, READER):
        told = harness.recording.errors.get(who, [])
        harness.claim(not told, f"{who}: told of {len(told)} errors: {'; '.join(told[:SENTENCES_MAX])}")


def take_gaps(harness: Harness, what: str) -> str:
    """The longest gap of each stream since this was asked last; noted as figures, and in words."""
    pauses = harness.recording.take_pauses()
    for stream, pause in sorted(pauses.items()):
        harness.figures.gap(f"{what}, {stream}", pause.seconds)
    return ", ".join(f"{stream} {pause.seconds:.2f} s" for stream, pause in sorted(pauses.items()))


async def controller_of(harness: Harness) -> tuple[int, ClusterDescription]:
    cluster = await harness.client.describe_cluster()
    if cluster.controller is None:
        raise ClusterFailure("every replica is in sync, and no controller is known")
    return cluster.controller, cluster


async def preferred_lead(harness: Harness) -> None:
    """Leaders back to where they are spread over brokers."""
    await harness.client.elect_preferred()

    async def lack() -> str | None:
        for stream in await harness.client.list_streams():
            for one in stream.partitions:
                if one.leader != one.replicas[0]:
                    return f"{stream.name}/{one.partition} is led by {one.leader}, not by {one.replicas[0]}"
        return None

    await harness.until(lack, "preferred leaders lead")
