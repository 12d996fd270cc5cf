"""The cases with three brokers: those of `copies`, end-to-end latency, failovers, and many streams."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.cases.copies import (
    DURABILITIES,
    LATENCY,
    SERVERS,
    SIZES,
    consume,
    cpu,
    nats_ingest,
    produce,
    serial,
)
from bench.clusters.failover import FAULTS
from bench.clusters.many import ASPECTS
from bench.harness.case import Case
from bench.ours import contenders as ours
from bench.ours import failover as our_failover
from bench.ours import many as our_many
from bench.peers.jetstream import contenders as jetstream
from bench.peers.jetstream import failover as jetstream_failover
from bench.peers.jetstream import many as jetstream_many
from bench.peers.kafka import contenders as kafka
from bench.peers.kafka import failover as kafka_failover
from bench.peers.kafka import many as kafka_many

COPIES = 3
E2E_RATE = 1000
OWN = "own"
"""The value of `Case.servers` for a case that starts and stops servers of its own."""


def replicated_cases() -> list[Case]:
    return [
        *(
            case
            for durability in DURABILITIES
            for size in SIZES
            for case in produce(durability, size, COPIES)
        ),
        *(consume(label, COPIES) for label in SIZES),
        *(case for durability in DURABILITIES for case in serial(durability, COPIES)),
        *(nats_ingest(durability, COPIES) for durability in DURABILITIES),
        _end_to_end(),
        cpu(COPIES),
        *_failover(),
        *_streams(),
    ]


def _end_to_end() -> Case:
    how: dict[str, Any] = {"rate": E2E_RATE, "copies": COPIES}
    return Case(
        "e2e.rf3.1000rps", LATENCY, False,
        partial(ours.end_to_end, **how),
        {"jetstream": [partial(jetstream.end_to_end, **how)], "kafka": [partial(kafka.end_to_end, **how)]},
        servers=SERVERS[COPIES],
    )  # fmt: skip


def _failover() -> list[Case]:
    """One round each: a round is many failovers."""
    return [
        Case(
            f"failover.{event}", "s", False,
            partial(our_failover.contender, event=event),
            {}
            if fault.role == "controller"
            else {
                "jetstream": [partial(jetstream_failover.contender, event=event)],
                "kafka": [partial(kafka_failover.contender, event=event)],
            },
            rounds_max=1,
            servers=OWN,
        )
        for event, fault in FAULTS.items()
    ]  # fmt: skip


def _streams() -> list[Case]:
    """1,000 streams with the peers, 5,000 with Tidelog alone."""
    cases = []
    for count, beside in ((1000, True), (5000, False)):
        for aspect, unit in ASPECTS.items():
            how: dict[str, Any] = {"streams": count, "aspect": aspect}
            peers = {
                "jetstream": [partial(jetstream_many.cost, **how)],
                "kafka": [partial(kafka_many.cost, **how)],
            }
            cases.append(
                Case(
                    f"streams.{count}.{aspect}", unit, False,
                    partial(our_many.cost, **how),
                    peers if beside else {},
                    rounds_max=1,
                    servers=OWN,
                )
            )  # fmt: skip
    failover = partial(our_many.failover, streams=2000)
    return [*cases, Case("streams.2000.failover", "s", False, failover, rounds_max=1, servers=OWN)]
