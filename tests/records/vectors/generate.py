"""Writes the test vectors of the record batch (F5): `python tests/records/vectors/generate.py`.

The JSON files beside this one are a contract with implementations in other languages;
``docs/storage-format.md`` says how to use them. `test_vectors.py` checks them against
the code, and that this script still writes the same. A change of a committed vector is a
change of the format: add vectors, do not edit them.

Run from the root of the repository with ``client`` and ``tests`` on the path.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from records import twin
from records.forge import Forgery, compressed, reseal, stored_plain
from records.samples import COLUMN_SETS, COMPRESSIONS, RECORDS, STREAM_ID, T0, sample_batch
from tidelog.records import (
    HEADER_BYTES,
    BatchHeader,
    Columns,
    Compression,
    encode_batch,
    schema_of,
    stamp,
)
from tidelog.records.layout import COMPACTED, HAS_MESSAGE_IDS
from tidelog.records.projected import decode_projected, pack_projected, split_projected
from tidelog.records.projecting import BytesNeeded, Projector

HERE = Path(__file__).parent
ALL = COLUMN_SETS[-1]
PARTITION = 3
BASE_OFFSET, APPEND_TIME_US, LEADER_EPOCH = 1_000_000_007, T0 + 123_456, 12

Vector = dict[str, Any]


def plain_json(record: dict[str, Any]) -> dict[str, Any]:
    """A record with its bytes in hex; ``timestamp`` is µs since the epoch."""

    def shown(value: Any) -> Any:
        match value:
            case bytes():
                return value.hex()
            case list():
                return [[header["key"], shown(header["value"])] for header in value]
            case _:
                return value

    return {name: shown(value) for name, value in record.items()}


def header_json(batch: bytes) -> dict[str, Any]:
    fields = twin.read_header(batch)
    return fields | {"magic": fields["magic"].decode()}


def understood(name: str, says: str, batch: bytes, **more: Any) -> Vector:
    return {
        "name": name,
        "says": says,
        **more,
        "batch": batch.hex(),
        "header": header_json(batch),
        "records": [plain_json(record) for record in twin.read_records(batch)],
    }


# --- As a client sends them


def accepted() -> Iterator[Vector]:
    for present in COLUMN_SETS:
        for compression in COMPRESSIONS:
            names = "-".join(schema_of(present).names)
            says = f"Three records with the columns {names}, compression {compression.name.lower()}."
            yield understood(f"{names}-{compression.name.lower()}", says, sample_batch(present, compression))
    minimal = [{"value": b"hello", "timestamp": T0}]
    yield understood(
        "worked-example",
        "One record with a value and nothing else: the example in docs/storage-format.md.",
        sample_batch(records=minimal),
    )
    yield understood(
        "producer",
        "An idempotent producer's batch; its sequence numbers wrap inside it.",
        sample_batch(producer_id=0x1122334455667788, producer_epoch=9, base_sequence=0xFFFFFFFE),
    )
    yield understood(
        "extreme-timestamps",
        "Timestamps are signed 64-bit numbers; nothing bounds them from below.",
        sample_batch(
            records=[{"value": b"", "timestamp": -(1 << 63)}, {"value": b"", "timestamp": (1 << 63) - 1}]
        ),
    )
    yield understood(
        "many-nulls",
        "Seventeen records, so that a bitmap has more than two bytes.",
        sample_batch(
            Columns.KEY | Columns.SUBJECT,
            records=[
                {
                    "key": None if n % 2 else bytes([n]),
                    "value": None if n % 3 else b"v",
                    "subject": f"s.{n}" if n % 5 else None,
                    "timestamp": T0 + n,
                }
                for n in range(17)
            ],
        ),
    )
    yield from other_writers()


def other_writers() -> Iterator[Vector]:
    forged = Forgery.of(sample_batch(ALL))
    yield understood(
        "bitmap-without-nulls",
        "A validity bitmap may be there where nothing is null, if all its bits are ones.",
        forged.with_buffer(18, b"\x07").with_buffer(6, b"\xff" * 64).batch(),
    )
    yield understood("padded-metadata", "Metadata may be padded.", forged.but(padding=64).batch())
    places = [(at + 64, size) for at, size in forged.honest_places()]
    body = bytes(64) + b"".join(one + bytes(-len(one) % 8) for one in forged.buffers)
    yield understood(
        "gap-before-buffers",
        "Buffers lie in order, but need not touch.",
        forged.but(places=places, body=body).batch(),
    )
    for compression in (Compression.LZ4, Compression.ZSTD):
        packed = Forgery.of(sample_batch(ALL, compression))
        buffers = [stored_plain(twin.plain(one, packed.codec)) if one else one for one in packed.buffers]
        yield understood(
            f"length-minus-one-{compression.name.lower()}",
            "A buffer in a compressed body may be left plain: its length prefix is -1.",
            packed.but(buffers=buffers).batch(),
        )


# --- As a leader stores them


def stamped(batch: bytes, **fields: Any) -> bytes:
    place: dict[str, Any] = {
        "stream_id": STREAM_ID,
        "partition": PARTITION,
        "base_offset": BASE_OFFSET,
        "append_time_us": APPEND_TIME_US,
        "leader_epoch": LEADER_EPOCH,
    }
    return stamp(batch, **(place | fields)) + batch[80:]


def stored_batches() -> Iterator[tuple[str, str, bytes]]:
    for compression in COMPRESSIONS:
        name = compression.name.lower()
        yield f"stored-{name}", "As sent, with the leader's fields.", stamped(sample_batch(ALL, compression))
    message_ids = [RECORDS[0] | {"headers": [{"key": "Nats-Msg-Id", "value": b"m-1"}]}]
    yield (
        "stored-message-ids",
        "Bit 7: the Nats-Msg-Id header of this record is deduplicated.",
        stamped(sample_batch(Columns.HEADERS, records=message_ids, flags=HAS_MESSAGE_IDS)),
    )
    schema = schema_of(Columns.KEY, compacted=True)
    kept = [(b"a", b"1", T0, 2), (b"b", None, T0 + 1, 9)]
    columns = pa.record_batch(
        [
            pa.array([record[n] for record in kept], schema.field(name).type)
            for n, name in enumerate(schema.names)
        ],
        schema=schema,
    )
    compacted = reseal(encode_batch(columns, flags=COMPACTED), last_offset_delta=11)
    yield (
        "stored-compacted",
        "Bit 5: two of twelve records are left, with their offset deltas.",
        stamped(compacted),
    )


def stored() -> Iterator[Vector]:
    for name, says, batch in stored_batches():
        place = {"stream_id": STREAM_ID.hex(), "partition": PARTITION}
        yield understood(name, says, batch, **place)


def damaged() -> Iterator[Vector]:
    """Stored batches that must not be believed."""
    batch = stamped(sample_batch(ALL))

    def one(name: str, says: str, bad: bytes, stream_id: bytes = STREAM_ID, partition: int = 3) -> Vector:
        place = {"stream_id": stream_id.hex(), "partition": partition}
        return {"name": name, "says": says, **place, "error": "DATA_CORRUPT", "batch": bad.hex()}

    yield one("other-partition", "The header CRC binds a batch to its partition.", batch, partition=4)
    other = bytes([STREAM_ID[0] ^ 1]) + STREAM_ID[1:]
    yield one("other-stream", "The header CRC binds a batch to its stream id.", batch, stream_id=other)
    for name, at in (("base-offset", 8), ("append-time", 16), ("leader-epoch", 24), ("header-crc", 28)):
        bad = batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]
        yield one(f"flipped-{name}", f"Bit 0 of byte {at} is flipped.", bad)
    yield one("flipped-value", "A bit of the body is flipped.", batch[:-1] + bytes([batch[-1] ^ 1]))
    mended = batch[:-1] + bytes([batch[-1] ^ 1])
    mended = mended[:32] + twin.body_crc(mended).to_bytes(4, "little") + mended[36:]
    yield one("mended-body-crc", "The body CRC was made to fit the flip; the header CRC covers it.", mended)


# --- Refused


def refused() -> Iterator[Vector]:
    for name, says, error, batch in [*refused_headers(), *refused_messages(), *refused_bodies()]:
        yield {"name": name, "says": says, "error": error, "batch": batch.hex()}


Refusal = tuple[str, str, str, bytes]


def refused_headers() -> Iterator[Refusal]:
    batch, corrupt, unknown = sample_batch(ALL), "CORRUPT_BATCH", "UNSUPPORTED_VERSION"
    yield "empty", "No bytes at all.", corrupt, b""
    yield "short-header", "79 bytes.", corrupt, batch[:79]
    yield "header-only", "A header without a body.", corrupt, reseal(batch[:80])
    yield "truncated", "The last eight bytes are missing.", corrupt, batch[:-8]
    yield "trailing", "Eight bytes behind the batch.", corrupt, batch + bytes(8)
    yield "magic", "Another magic.", corrupt, reseal(batch, magic=b"TLB2")
    yield "length", "A length that is no multiple of 8.", corrupt, reseal(batch, length=len(batch) - 1)
    yield "body-crc", "A wrong body CRC.", corrupt, reseal(batch, body_crc=0)
    yield "schema-version", "Schema version 2.", unknown, reseal(batch, schema_version=2)
    yield "attribute-bit-8", "An attribute bit without a meaning.", unknown, reseal(batch, attributes=0x11C)
    yield "compression-3", "Compression 3 does not exist.", unknown, reseal(batch, attributes=0x1F)
    for bit, name in ((5, "compacted"), (6, "control"), (7, "message-ids")):
        says = f"Bit {bit} is a broker's to set."
        yield f"attribute-{name}", says, corrupt, reseal(batch, attributes=0x1C | 1 << bit)
    for field in ("base_offset", "append_time_us", "leader_epoch", "header_crc", "reserved"):
        yield f"not-zero-{field}", f"A client sends 0 as {field}.", corrupt, reseal(batch, **{field: 1})
    yield "no-records", "A count of 0.", corrupt, reseal(batch, record_count=0, last_offset_delta=0)
    yield (
        "count",
        "The header counts 4, the body 3.",
        corrupt,
        reseal(batch, record_count=4, last_offset_delta=3),
    )
    yield "delta", "A last offset delta that is not count - 1.", corrupt, reseal(batch, last_offset_delta=3)
    yield "sequence-without-producer", "F6.", corrupt, reseal(batch, base_sequence=1)
    yield "epoch-without-producer", "F6.", corrupt, reseal(batch, producer_epoch=1)
    yield "timestamp-min", "Not the smallest.", corrupt, reseal(batch, timestamp_min_us=T0)
    yield "timestamp-max", "Not the largest.", corrupt, reseal(batch, timestamp_max_us=T0 + 8)
    yield (
        "columns",
        "The bits name two columns more than the body has.",
        corrupt,
        reseal(sample_batch(Columns.KEY), attributes=0x1C),
    )


def refused_messages() -> Iterator[Refusal]:
    forged, corrupt = Forgery.of(sample_batch(ALL)), "CORRUPT_BATCH"
    changes = {
        "message-trailing": ("Bytes behind the Arrow message.", forged.but(trailing=bytes(8))),
        "message-version": ("Metadata version V4.", forged.but(version=3)),
        "message-kind": ("A schema message in place of a record batch.", forged.but(kind=1)),
        "custom-metadata": ("Custom metadata.", forged.but(custom_metadata=True)),
        "unknown-field": ("A field that V5 does not know.", forged.but(unknown_fields=1)),
        "variadic": ("Variadic buffers.", forged.but(variadic=[1])),
        "extra-node": ("One field node too many.", forged.but(nodes=[*forged.nodes, (3, 0)])),
        "missing-buffer": ("One buffer too few.", forged.but(buffers=forged.buffers[:-1])),
        "extra-buffer": ("One buffer too many.", forged.but(buffers=[*forged.buffers, b"hidden"])),
        "codec": ("The body says lz4, the attributes none.", forged.but(codec=0)),
        "overlap": ("Two buffers in one place.", forged.with_place(5, *forged.honest_places()[4])),
        "misaligned": ("A buffer off its alignment.", forged.with_place(0, 4, 1)),
        "outside": ("A buffer beyond the body.", forged.with_place(19, 1 << 40, 24)),
        "rows": ("The message counts 2 rows.", forged.but(rows=2)),
    }
    for name, (says, forgery) in changes.items():
        yield name, says, corrupt, forgery.batch()


def refused_bodies() -> Iterator[Refusal]:
    forged, corrupt = Forgery.of(sample_batch(ALL)), "CORRUPT_BATCH"
    three = struct.Struct("<4i")
    changes = {
        "null-timestamp": ("A null timestamp.", forged.with_node(7, 3, 1).with_buffer(18, b"\x05")),
        "hidden-null-timestamp": (
            "A null count of 0 and a bitmap with a zero.",
            forged.with_buffer(18, b"\x05"),
        ),
        "hidden-null-header": ("The same in the list's items.", forged.with_buffer(8, b"\x05")),
        "hidden-null-header-key": ("The same in header keys.", forged.with_buffer(9, b"\x05")),
        "null-count": ("Two nulls counted, one in the bitmap.", forged.with_node(0, 3, 2)),
        "no-bitmap": ("A null counted, and no bitmap.", forged.with_buffer(0, b"")),
        "short-struct": ("Header keys fewer than headers.", forged.with_node(4, 2, 0)),
        "long-struct": (
            "Headers fewer than header keys.",
            forged.with_node(4, 4, 0).with_buffer(10, forged.buffers[10] + forged.buffers[10][-4:]),
        ),
        "offsets-decrease": ("Offsets that go back.", forged.with_buffer(1, three.pack(0, 2, 1, 2))),
        "offsets-negative": ("A negative offset.", forged.with_buffer(1, three.pack(-1, 0, 0, 2))),
        "offsets-beyond": ("An offset beyond the data.", forged.with_buffer(4, three.pack(0, 5, 5, 99))),
        "list-beyond": ("A list beyond its items.", forged.with_buffer(7, three.pack(0, 2, 2, 4))),
        "subject-not-utf8": ("A subject that is not UTF-8.", forged.with_buffer(17, b"\xff" * 17)),
        "header-key-not-utf8": ("A header key that is not UTF-8.", forged.with_buffer(11, b"a\xffaa")),
        "subject-under-null": (
            "Bytes under a null subject that are not UTF-8.",
            forged.with_buffer(16, three.pack(0, 1, 3, 4)).with_buffer(17, b"a\xff\xfeb"),
        ),
    }
    for name, (says, forgery) in changes.items():
        yield name, says, corrupt, forgery.batch()
    for compression in (Compression.LZ4, Compression.ZSTD):
        name, packed = compression.name.lower(), Forgery.of(sample_batch(ALL, compression))
        for claim, error in (
            (300 << 20, "BATCH_TOO_LARGE"),
            ((1 << 63) - 1, "BATCH_TOO_LARGE"),
            (-2, corrupt),
            (1, corrupt),
            (4096, corrupt),
        ):
            lie = struct.pack("<q", claim) + packed.buffers[5][8:]
            says = f"A buffer's length prefix says {claim}."
            yield f"claim-{claim}-{name}", says, error, packed.with_buffer(5, lie).batch()
        yield f"no-prefix-{name}", "A buffer of 4 bytes.", corrupt, packed.with_buffer(19, bytes(4)).batch()
        short = compressed(b"\x07", packed.codec, claim=8)
        says = "A bitmap whose compressed data ends before its claim."
        yield f"short-bitmap-{name}", says, corrupt, packed.with_buffer(18, short).batch()


def projected() -> Iterator[Vector]:
    """What a broker makes of the batches of the samples for some readers."""
    wanted: dict[str, tuple[str, list[str], list[str], list[bytes]]] = {
        "all": ("All columns and all records.", [], [">", "größe"], []),
        "columns": ("Two columns of all records.", ["key", "timestamp"], [], []),
        "offsets": ("No column but the offset.", ["offset"], [], []),
        "subject": ("The records of a subject.", [], ["tide.*"], []),
        "key": ("The value of a record with an empty key.", ["value"], [], [b""]),
        "nothing": ("No record matches.", [], ["ebb"], []),
    }
    for compression in COMPRESSIONS:
        batch = sample_batch(ALL, compression)
        stored = BatchHeader.unpack(batch)._replace(base_offset=BASE_OFFSET)
        body = pa.py_buffer(batch).slice(HEADER_BYTES)
        for name, (says, columns, subjects, keys) in wanted.items():
            found = Projector(columns, subjects, keys).project(stored, body, 0, 1 << 62, 1 << 30)
            assert not isinstance(found, BytesNeeded)
            facts = (
                {}
                if found is None
                else {
                    "append_time_us": APPEND_TIME_US,
                    "attributes": found.attributes,
                    "record_count": found.record_count,
                }
            )
            parts = [] if found is None else found.parts
            head = pack_projected(
                STREAM_ID,
                PARTITION,
                parts,
                start_offset=BASE_OFFSET - 5,
                next_offset=stored.next_offset,
                leader_epoch=LEADER_EPOCH,
                **facts,
            )
            data = b"".join((head, *parts))
            yield {
                "name": f"{name}-{compression.name.lower()}",
                "says": says,
                "stream_id": STREAM_ID.hex(),
                "partition": PARTITION,
                **projected_json(data),
                "projected": data.hex(),
            }


def projected_json(data: bytes) -> Vector:
    """The header and the records of one projected batch of these vectors."""
    ((header, body),) = split_projected(data, STREAM_ID, PARTITION)
    columns = decode_projected(header, body) if header.record_count else None
    rows: list[dict[str, Any]] = []
    if columns is not None:
        rows = twin.records_of(columns) if "timestamp" in columns.schema.names else columns.to_pylist()
    return {
        "header": header._asdict() | {"magic": header.magic.decode()},
        "records": [plain_json(row) for row in rows],
    }


ABOUT = {
    "accepted": "Batches as a client sends them, which a leader accepts under the default limits.",
    "stored": "Batches as they lie on disk and come out of Fetch; both CRCs hold for the given place.",
    "damaged": "Stored batches whose CRCs do not hold for the given place: never to be believed.",
    "refused": "Batches that a leader refuses under the default limits, and the error code.",
    "projected": "Projected batches as they come out of Fetch; the CRC holds for the given place.",
}
MAKERS = {
    "accepted": accepted,
    "stored": stored,
    "damaged": damaged,
    "refused": refused,
    "projected": projected,
}


def render(name: str) -> str:
    """The text of one file of vectors."""
    head = {"about": ABOUT[name], "made_with": f"pyarrow {pa.__version__}", "vectors": list(MAKERS[name]())}
    return json.dumps(head, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    for name in MAKERS:
        (HERE / f"{name}.json").write_text(render(name), encoding="utf-8")


if __name__ == "__main__":
    main()
