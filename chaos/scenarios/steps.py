"""Steps, measurements and claims that several scenarios share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chaos.cluster import ClusterFailure
from chaos.harness import Harness
from chaos.load import IDEMPOTENT, READER, STEADY
from tidelog.model import ClusterDescription

SENTENCES_MAX: Final = 3
"""How many errors of one kind of client a claim quotes."""


def claim_no_errors(harness: Harness, writers: Iterable[str] = IDEMPOTENT) -> None:
    """Claims that no writer of these kinds and no reader got an error."""
    for name in (*writers, STEADY.name, READER):
        errors = harness.recording.errors.get(name, [])
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        client = "a reader" if name == READER else f"the writer '{name}'"
        harness.claim(
            not errors,
            f"No client may get an error; {client} got {count}: {'; '.join(errors[:SENTENCES_MAX])}",
        )


def take_gaps(harness: Harness, what: str) -> str:
    """Adds the longest gap of each stream since the last call to the figures. Returns the gaps as text."""
    pauses = harness.recording.take_pauses()
    for stream, pause in sorted(pauses.items()):
        harness.figures.gap(f"{what}, {stream}", pause.seconds)
    return ", ".join(f"{stream} {pause.seconds:.2f} s" for stream, pause in sorted(pauses.items()))


async def controller_of(harness: Harness) -> tuple[int, ClusterDescription]:
    """The id of the controller. Raises `ClusterFailure` if there is none."""
    cluster = await harness.client.describe_cluster()
    if cluster.controller is None:
        raise ClusterFailure("Every replica is in sync, and the cluster names no controller.")
    return cluster.controller, cluster


async def preferred_lead(harness: Harness) -> None:
    """Moves leadership to the preferred leaders, which are spread over the brokers."""
    await harness.client.elect_preferred()

    async def lack() -> str | None:
        for stream in await harness.client.list_streams():
            for one in stream.partitions:
                if one.leader != one.replicas[0]:
                    return (
                        f"broker {one.leader} leads {stream.name}/{one.partition}; preferred is broker "
                        f"{one.replicas[0]}"
                    )
        return None

    await harness.until(lack, "the preferred leaders lead")
