"""``tidelog dump``: shows a segment file batch by batch. It works offline and needs no broker."""

from __future__ import annotations

import contextlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import typer

from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output
from tidelog.cli.records.record_json import to_json
from tidelog.cli.values import show_time_us
from tidelog.errors import CorruptBatch, DataCorrupt
from tidelog.model import Record, id_bytes, id_text
from tidelog.records import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    Columns,
    Compression,
    decode_batch,
    header_crc,
)
from tidelog.records.checksum import crc32c
from tidelog.records.layout import check_framing
from tidelog.wording import count_of

EXAMPLE = "tidelog dump data/streams/orders~1f6a90c2/0/00000000000000000000.log --records --limit 2"

_IDENTITY = struct.Struct("<4s16sI")


class Place(NamedTuple):
    """The partition of a segment; the header CRCs of its batches cover it."""

    stream_id: bytes
    partition: int


def dump(
    file: Path = typer.Argument(help="A segment file (….log) of a data directory."),
    records: bool = typer.Option(
        False, "--records", help="Show the records, too, not only the headers of the batches."
    ),
    limit: int | None = typer.Option(None, "--limit", "-n", min=1, help="Show at most this many batches."),
    offset: int = typer.Option(0, "--from", min=0, help="Begin with the batch that holds this offset."),
    stream_id: str | None = typer.Option(
        None,
        "--stream-id",
        help="The id of the segment's stream, if there is no identity file beside the segment.",
    ),
    partition: int | None = typer.Option(
        None, "--partition", min=0, help="The segment's partition; needs --stream-id."
    ),
    output: Output = OUTPUT,
) -> None:
    """Show the batches and records of a segment file.

    The command reads the file as it is, also while a broker writes it. At the first damaged batch it ends
    with code 1. `tidelog verify` checks the whole directory. With --output json each line is an object that
    describes one batch.
    """
    if (stream_id is None) != (partition is None):
        fail("--stream-id and --partition need each other; give both or neither", Exit.USAGE)
    place = _identity(file) if stream_id is None else Place(id_bytes(stream_id), partition or 0)
    if not file.is_file():
        fail(f"{file} is not a file" if file.exists() else f"there is no file {file}", Exit.NOT_FOUND)
    if output is Output.TABLE:
        whose = (
            "unknown, so header CRCs are not checked"
            if place is None
            else f"{id_text(place.stream_id)}/{place.partition}"
        )
        sys.stdout.write(f"{file}\nstream id/partition: {whose}\n")
    shown = 0
    for position, header, batch in _batches(file):
        if header.next_offset <= offset:
            continue
        if shown == limit:
            return
        shown += 1
        wrong = _wrong(batch, header, place)
        if output is Output.JSON:
            _print_json(position, header, batch, wrong, records)
        else:
            _print_text(position, header, batch, wrong, records)
        if wrong:
            fail(f"{file}: the batch at byte {position} is damaged: {wrong}")


def _batches(file: Path) -> Iterator[tuple[int, BatchHeader, pa.Buffer]]:
    """Position, header and bytes of each batch; ends the command at bytes that cannot be a batch."""
    with pa.memory_map(str(file)) if file.stat().st_size else contextlib.nullcontext() as source:
        if source is None:
            return
        data = source.read_buffer()
        at = 0
        while at < data.size:
            if data.size - at < HEADER_BYTES:
                rest = count_of(data.size - at, "byte")
                fail(f"{file}: {rest} at byte {at} cannot be a batch, whose header has {HEADER_BYTES} bytes")
            header = BatchHeader.unpack(data, at)
            try:
                check_framing(header, data.size - at)
            except CorruptBatch as error:
                fail(f"{file}: no batch at byte {at}: {error}")
            yield at, header, data.slice(at, header.length)
            at += header.length


def _wrong(batch: pa.Buffer, header: BatchHeader, place: Place | None) -> str:
    """What is wrong with a batch; empty: it is sound."""
    found = crc32c(batch.slice(36))
    if found != header.body_crc:
        return f"the body's CRC is {found:08x}, but the header says {header.body_crc:08x}"
    if place is not None:
        found = header_crc(place.stream_id, place.partition, bytes(batch.slice(0, 36)))
        if found != header.header_crc:
            return f"the header's CRC is {found:08x}, but the header says {header.header_crc:08x}"
    return ""


def _identity(file: Path) -> Place | None:
    """The partition that the identity file beside the segment names; None: there is no valid file."""
    try:
        data = (file.parent / "identity").read_bytes()
    except OSError:
        return None
    if len(data) != _IDENTITY.size + 4 or int.from_bytes(data[-4:], "little") != crc32c(data[:-4]):
        return None
    magic, stream_id, partition = _IDENTITY.unpack_from(data)
    return Place(stream_id, partition) if magic == b"TLI1" else None


def _rows(batch: pa.Buffer, header: BatchHeader) -> Iterator[Record]:
    try:
        columns = decode_batch(batch, header)
    except (CorruptBatch, DataCorrupt) as error:
        fail(f"the batch at offset {header.base_offset} cannot be opened: {error}")
    for number, row in enumerate(columns.cast(_with_integer_time(columns.schema)).to_pylist()):
        yield Record(
            offset=header.base_offset + row.get("offset_delta", number),
            key=row.get("key"),
            value=row["value"],
            headers=tuple((item["key"], item["value"]) for item in row.get("headers") or ()),
            subject=row.get("subject"),
            timestamp_us=row["timestamp"],
            leader_epoch=header.leader_epoch,
            append_time_us=header.append_time_us,
            stream="",
            partition=0,
        )


def _with_integer_time(schema: pa.Schema) -> pa.Schema:
    return schema.set(schema.get_field_index("timestamp"), pa.field("timestamp", pa.int64(), nullable=False))


def _fields(position: int, header: BatchHeader, wrong: str) -> dict[str, Any]:
    producer = None if header.producer_id == NO_PRODUCER_ID else header.producer_id
    return {
        "position": position,
        "bytes": header.length,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "append_time": show_time_us(header.append_time_us),
        "timestamp_min": show_time_us(header.timestamp_min_us),
        "timestamp_max": show_time_us(header.timestamp_max_us),
        "compression": _compression(header),
        "columns": [column.name.lower() for column in Columns if column & header.columns and column.name],
        "compacted": header.compacted,
        "message_ids": header.has_message_ids,
        "producer_id": producer,
        "producer_epoch": None if producer is None else header.producer_epoch,
        "base_sequence": None if producer is None else header.base_sequence,
        "schema_version": header.schema_version,
        "body_crc": f"{header.body_crc:08x}",
        "header_crc": f"{header.header_crc:08x}",
        "sound": not wrong,
    }


def _compression(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except ValueError:
        return str(header.compression)


def _print_json(position: int, header: BatchHeader, batch: pa.Buffer, wrong: str, records: bool) -> None:
    found = _fields(position, header, wrong)
    if records and not wrong:
        found["rows"] = [_row_json(record) for record in _rows(batch, header)]
    sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")


def _row_json(record: Record) -> dict[str, Any]:
    row = to_json(record)
    return {
        name: value
        for name, value in row.items()
        if name not in ("stream", "partition", "leader_epoch", "append_time")
    }


def _print_text(position: int, header: BatchHeader, batch: pa.Buffer, wrong: str, records: bool) -> None:
    found = _fields(position, header, wrong)
    producer = (
        ""
        if found["producer_id"] is None
        else f" producer {found['producer_id']} sequence {found['base_sequence']}"
    )
    columns = ", ".join(found["columns"]) or "value only"
    sys.stdout.write(
        f"\nbyte {position}: offsets {header.base_offset}–{header.last_offset}, "
        f"{count_of(header.record_count, 'record')}, "
        f"{count_of(header.length, 'byte')}, epoch {header.leader_epoch}, {found['compression']}, "
        f"{columns}{producer}\n"
        f"  appended {found['append_time']}, timestamps {found['timestamp_min']} – {found['timestamp_max']}, "
        f"CRCs {found['header_crc']} {found['body_crc']}{' DAMAGED' if wrong else ''}\n"
    )
    if records and not wrong:
        for record in _rows(batch, header):
            sys.stdout.write(f"    {json.dumps(_row_json(record), ensure_ascii=False)}\n")
