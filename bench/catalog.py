"""All cases: what is measured, in which unit, against whom."""

from __future__ import annotations

from functools import partial

from bench import layers, physical
from bench.model import Case
from bench.ours import contenders as ours
from bench.ours.client import records_per_batch
from bench.peers.jetstream import contenders as jetstream
from bench.peers.kafka import contenders as kafka

PEERS = ("jetstream", "kafka", "physical")
"""What `--peers` can name. `physical` is the machine itself, measured in the same rounds."""

SIZES = {"100B": 100, "1KB": 1000}
DURABILITIES = {"fsync": True, "pagecache": False}

RATE = "records/s"
ROWS = "rows/s"
LATENCY = "ms"


def all_cases() -> list[Case]:
    return [
        *_produce(),
        *_consume(),
        *_serial(),
        *_nats_ingest(),
        *_spark(),
        *_cost(),
        *_layers(),
        *_physical(),
    ]


def _produce() -> list[Case]:
    cases = []
    for durability, fsync in DURABILITIES.items():
        for label, size in SIZES.items():
            cases.append(
                Case(
                    f"produce.rf1.{durability}.{label}.batch", RATE, True,
                    partial(ours.produce, batches=True, fsync=fsync, size=size),
                    {
                        # Where ours is synced, JetStream is shown as it is by default as well.
                        "jetstream": [
                            partial(jetstream.publish, go=True, fsync=synced, size=size)
                            for synced in sorted({fsync, False}, reverse=True)
                        ],
                        "kafka": [partial(kafka.produce, fsync=fsync, size=size)],
                        "physical": [partial(physical.write, fsync=fsync, size=size)],
                    },
                )
            )  # fmt: skip
            cases.append(
                Case(
                    f"produce.rf1.{durability}.{label}.record", RATE, True,
                    partial(ours.produce, batches=False, fsync=fsync, size=size),
                    {
                        "jetstream": [partial(jetstream.publish, go=False, fsync=fsync, size=size)],
                        "kafka": [
                            partial(kafka.python_producer, work="aiokafka", fsync=fsync, size=size),
                            partial(kafka.python_producer, work="confluent", fsync=fsync, size=size),
                        ],
                    },
                )
            )  # fmt: skip
    return cases


def _consume() -> list[Case]:
    return [
        Case(
            f"consume.rf1.{label}", RATE, True,
            partial(ours.consume, size=size),
            {
                "jetstream": [partial(jetstream.consume, size=size)],
                "kafka": [
                    partial(kafka.consumer_performance, size=size),
                    partial(kafka.warm_consumer, size=size),
                ],
                "physical": [partial(physical.network, size=size)],
            },
        )
        for label, size in SIZES.items()
    ]  # fmt: skip


def _serial() -> list[Case]:
    cases = []
    for durability, fsync in DURABILITIES.items():
        floor = layers.grpc_and_disk if fsync else layers.grpc_alone
        cases.append(
            Case(
                f"serial.rf1.{durability}.grpc", LATENCY, False,
                partial(ours.serial, fsync=fsync),
                {
                    "jetstream": [partial(jetstream.serial, fsync=fsync, go=True)],
                    "kafka": [partial(kafka.serial, fsync=fsync)],
                    "physical": [floor],
                },
            )
        )  # fmt: skip
        cases.append(
            Case(
                f"serial.rf1.{durability}.nats", LATENCY, False,
                partial(ours.over_nats, work="serial", fsync=fsync),
                {"jetstream": [partial(jetstream.serial, fsync=fsync, go=False)]},
            )
        )  # fmt: skip
    return cases


def _nats_ingest() -> list[Case]:
    return [
        Case(
            f"nats_ingest.rf1.{durability}", RATE, True,
            partial(ours.over_nats, work="publish", fsync=fsync),
            {"jetstream": [partial(jetstream.publish, fsync=fsync, size=100, go=False)]},
        )
        for durability, fsync in DURABILITIES.items()
    ]  # fmt: skip


def _spark() -> list[Case]:
    # One round: a session takes seconds to start, and reads several times while it is there.
    return [
        Case(
            f"spark.read.{work}", ROWS, True,
            partial(ours.spark, work=work, size=SIZES["100B"]),
            rounds_max=1,
        )
        for work in ("batch", "stream")
    ]  # fmt: skip


def _cost() -> list[Case]:
    both = {"idle": False, "load": True}
    return [
        Case(
            "cpu.rf1", "server CPU s per million records", False,
            ours.cpu, {"jetstream": [jetstream.cpu], "kafka": [kafka.cpu]},
        ),
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
            in_folder(layers.roundtrip, message_bytes=layers.ECHO_BYTES),
        ),
        Case(
            "layer.grpc.stream", "MB/s", True,
            in_folder(layers.stream, message_bytes=layers.STREAM_MESSAGE_BYTES),
        ),
    ]  # fmt: skip


def _physical() -> list[Case]:
    block = physical.BLOCK_BYTES
    return [
        Case("phys.fdatasync.4k", LATENCY, False, physical.alone(physical.fdatasync)),
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
