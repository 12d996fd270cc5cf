"""The cases that exist with one copy of each stream (rf1) and with three copies (rf3), with the same work.

With three copies Tidelog, JetStream and Kafka are clusters of three servers on this machine.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.alone import physical, plain_grpc
from bench.harness.case import Case
from bench.ours import contenders as ours
from bench.peers.jetstream import contenders as jetstream
from bench.peers.kafka import consuming
from bench.peers.kafka import contenders as kafka

SIZES = {"100B": 100, "1KB": 1000}
DURABILITIES = {"fsync": True, "pagecache": False}

RATE = "records/s"
LATENCY = "ms"

SERVERS = {1: "one", 3: "three"}


def produce(durability: str, label: str, copies: int = 1) -> list[Case]:
    """Producing in batches, and record by record."""
    fsync, size = DURABILITIES[durability], SIZES[label]
    name = f"produce.rf{copies}.{durability}.{label}"
    how: dict[str, Any] = {"fsync": fsync, "size": size, "copies": copies}
    return [
        Case(
            f"{name}.batch", RATE, True,
            partial(ours.produce, batches=True, **how),
            {
                # Where Tidelog syncs, JetStream is also measured with its default.
                "jetstream": [
                    partial(jetstream.publish, go=True, fsync=synced, size=size, copies=copies)
                    for synced in sorted({fsync, False}, reverse=True)
                ],
                "kafka": [partial(kafka.produce, **how)],
                "physical": [partial(physical.write, **how)],
            },
            servers=SERVERS[copies],
        ),
        Case(
            f"{name}.record", RATE, True,
            partial(ours.produce, batches=False, **how),
            {
                "jetstream": [partial(jetstream.publish, go=False, **how)],
                "kafka": [
                    partial(kafka.python_producer, work="aiokafka", **how),
                    partial(kafka.python_producer, work="confluent", **how),
                ],
            },
            servers=SERVERS[copies],
        ),
    ]  # fmt: skip


def consume(label: str, copies: int = 1) -> Case:
    how: dict[str, Any] = {"size": SIZES[label], "copies": copies}
    return Case(
        f"consume.rf{copies}.{label}", RATE, True,
        partial(ours.consume, **how),
        {
            "jetstream": [partial(jetstream.consume, **how)],
            "kafka": [partial(read, **how) for read in (consuming.performance_tool, consuming.warm_consumer)],
            "physical": [partial(physical.network, size=SIZES[label])],
        },
        servers=SERVERS[copies],
    )  # fmt: skip


def serial(durability: str, copies: int = 1) -> list[Case]:
    """One record in flight, over gRPC and over NATS."""
    how: dict[str, Any] = {"fsync": DURABILITIES[durability], "copies": copies}
    name = f"serial.rf{copies}.{durability}"
    return [
        Case(
            f"{name}.grpc", LATENCY, False,
            partial(ours.serial, **how),
            {
                "jetstream": [partial(jetstream.serial, go=True, **how)],
                "kafka": [partial(kafka.serial, **how)],
                "physical": [plain_grpc.grpc_and_disk if how["fsync"] else plain_grpc.grpc_alone],
            },
            servers=SERVERS[copies],
        ),
        Case(
            f"{name}.nats", LATENCY, False,
            partial(ours.over_nats, work="serial", **how),
            {"jetstream": [partial(jetstream.serial, go=False, **how)]},
            servers=SERVERS[copies],
        ),
    ]  # fmt: skip


def nats_ingest(durability: str, copies: int = 1) -> Case:
    how: dict[str, Any] = {"fsync": DURABILITIES[durability], "copies": copies}
    return Case(
        f"nats_ingest.rf{copies}.{durability}", RATE, True,
        partial(ours.over_nats, work="publish", **how),
        {"jetstream": [partial(jetstream.publish, size=SIZES["100B"], go=False, **how)]},
        servers=SERVERS[copies],
    )  # fmt: skip


def cpu(copies: int = 1) -> Case:
    return Case(
        f"cpu.rf{copies}", "server CPU s per million records", False,
        partial(ours.cpu, copies=copies),
        {"jetstream": [partial(jetstream.cpu, copies=copies)], "kafka": [partial(kafka.cpu, copies=copies)]},
        servers=SERVERS[copies],
    )  # fmt: skip
