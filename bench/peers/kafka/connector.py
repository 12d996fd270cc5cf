"""Spark's Kafka connector: its jars, and its tuned options. `bench.spark` measures it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from bench.harness.build import built
from bench.peers.kafka.contenders import TUNED
from bench.peers.kafka.server import fetch

POM = Path(__file__).parent / "connector.xml"

TUNED_SOURCE = {
    # The broker answers at once: a micro-batch does not wait for more records.
    "kafka.fetch.max.wait.ms": "5",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "10000",
    # Spark's default is 64 KiB.
    "kafka.receive.buffer.bytes": str(1 << 20),
}

TUNED_SINK = {f"kafka.{name}": str(value) for name, value in TUNED.items()}


@cache
def versions() -> str:
    """The versions of the connector and of its client, for people."""
    found = dict(re.findall(r"<(connector|token|clients)\.version>([^<]+)<", POM.read_text()))
    return f"connector {found['connector']}, token provider {found['token']}, clients {found['clients']}"


@cache
def connector_jars() -> str:
    """The jars of the connector, separated by commas, as Spark takes them; fetched once. Raises `Missing`."""
    folder = built("kafka-connector", [POM], lambda half: fetch(POM, half))
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
