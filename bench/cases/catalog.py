"""The list of all cases. `copies` and `replicated` make those with one and with three copies."""

from __future__ import annotations

from functools import partial

from bench.alone import layers, physical, plain_grpc
from bench.cases.copies import (
    DURABILITIES,
    LATENCY,
    RATE,
    SIZES,
    consume,
    cpu,
    nats_ingest,
    produce,
    serial,
)
from bench.cases.replicated import replicated_cases
from bench.cases.spark import spark_cases
from bench.harness.case import Case
from bench.ours import contenders as ours
from bench.ours.client import records_per_batch
from bench.peers.jetstream import contenders as jetstream
from bench.peers.kafka import contenders as kafka

PEERS = ("jetstream", "kafka", "parquet", "unpruned", "memory", "physical")
"""The names for `--peers`. `physical` is the machine itself, measured in the same rounds; `parquet` is Spark
without a log, and `unpruned` is Tidelog without the option that a case is about."""


def all_cases() -> list[Case]:
    return [
        *_produce(),
        *_consume(),
        *_serial(),
        *_nats_ingest(),
        *spark_cases(),
        *_cost(),
        *_layers(),
        *_physical(),
        *replicated_cases(),
    ]


def _produce() -> list[Case]:
    return [case for durability in DURABILITIES for size in SIZES for case in produce(durability, size)]


def _consume() -> list[Case]:
    return [consume(label) for label in SIZES]


def _serial() -> list[Case]:
    return [case for durability in DURABILITIES for case in serial(durability)]


def _nats_ingest() -> list[Case]:
    return [nats_ingest(durability) for durability in DURABILITIES]


def _cost() -> list[Case]:
    both = {"idle": False, "load": True}
    return [
        cpu(),
        *(
            Case(
                f"memory.rf1.{label}", "MB", False,
                partial(ours.memory, loaded=loaded),
                {
                    "jetstream": [partial(jetstream.memory, loaded=loaded)],
                    "kafka": [partial(kafka.memory, loaded=loaded)],
                },
                rounds_max=1,
            )
            for label, loaded in both.items()
        ),
    ]  # fmt: skip


def _layers() -> list[Case]:
    batch = f"batches of {records_per_batch(layers.SIZE)} × {layers.SIZE} B"
    in_folder = physical.alone
    return [
        Case("layer.codec.encode", RATE, True, layers.alone(layers.encode, data=batch)),
        Case("layer.codec.decode", RATE, True, layers.alone(layers.decode, data=batch)),
        Case("layer.codec.validate", RATE, True, layers.alone(layers.validate, data=batch)),
        Case(
            "layer.storage.append", RATE, True,
            in_folder(partial(layers.append, fsync=False), data=batch),
        ),
        Case(
            "layer.storage.append.fsync", RATE, True,
            in_folder(partial(layers.append, fsync=True), data=f"{batch}, one at a time"),
        ),
        Case("layer.storage.read", RATE, True, in_folder(layers.read, data=batch)),
        Case(
            "layer.grpc.roundtrip", LATENCY, False,
            in_folder(plain_grpc.roundtrip, message_bytes=plain_grpc.ECHO_BYTES),
        ),
        Case(
            "layer.grpc.stream", "MB/s", True,
            in_folder(plain_grpc.stream, message_bytes=plain_grpc.STREAM_MESSAGE_BYTES),
        ),
    ]  # fmt: skip


def _physical() -> list[Case]:
    block = physical.BLOCK_BYTES
    return [
        Case("phys.fdatasync.4k", LATENCY, False, physical.alone(physical.fdatasync)),
        *(
            Case(
                f"phys.many_files.{how}", LATENCY, False,
                physical.alone(partial(physical.many_files, how=how), files=physical.MANY_FILES),
            )
            for how in ("turn", "threads", "syncfs")
        ),
        Case(
            "phys.seqwrite.fsync", "MB/s", True,
            physical.alone(partial(physical.sequential, fsync=True), block_bytes=block),
        ),
        Case(
            "phys.pagecache", "MB/s", True,
            physical.alone(partial(physical.sequential, fsync=False), block_bytes=block),
        ),
        Case(
            "phys.loopback_tcp", "MB/s", True,
            physical.alone(lambda _folder, _seconds: physical.loopback(), block_bytes=block),
        ),
    ]  # fmt: skip
