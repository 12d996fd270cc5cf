"""What several scenarios ask and claim of clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chaos.cluster import Trouble
from chaos.load import IDEMPOTENT, READER, STEADY
from chaos.stage import Stage
from tidelog.model import ClusterDescription

SENTENCES_MAX: Final = 3
"""Errors of one kind that are quoted."""


def claim_no_errors(stage: Stage, writers: Iterable[str] = IDEMPOTENT) -> None:
    """None of these writers and no reader was told of anything."""
    for who in (*writers, STEADY.name, READER):
        told = stage.recording.errors.get(who, [])
        stage.claim(not told, f"{who}: told of {len(told)} errors: {'; '.join(told[:SENTENCES_MAX])}")


def take_gaps(stage: Stage, what: str) -> str:
    """The longest gap of each stream since this was asked last; noted as figures, and in words."""
    pauses = stage.recording.take_pauses()
    for stream, pause in sorted(pauses.items()):
        stage.figures.gap(f"{what}, {stream}", pause.seconds)
    return ", ".join(f"{stream} {pause.seconds:.2f} s" for stream, pause in sorted(pauses.items()))


async def controller_of(stage: Stage) -> tuple[int, ClusterDescription]:
    cluster = await stage.client.describe_cluster()
    if cluster.controller is None:
        raise Trouble("every replica is in sync, and no controller is known")
    return cluster.controller, cluster


async def preferred_lead(stage: Stage) -> None:
    """Leaders back to where they are spread over brokers."""
    await stage.client.elect_preferred()

    async def lack() -> str | None:
        for stream in await stage.client.list_streams():
            for one in stream.partitions:
                if one.leader != one.replicas[0]:
                    return f"{stream.name}/{one.partition} is led by {one.leader}, not by {one.replicas[0]}"
        return None

    await stage.until(lack, "preferred leaders lead")
