"""What a leader refuses, one lie at a time, each under a right CRC (F1, F3, F4, F6)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from records import twin
from records.forge import Forgery, compressed, reseal, stored_plain
from records.samples import (
    COLUMN_SETS,
    COMPRESSIONS,
    RECORDS,
    T0,
    columns_from,
    only,
    sample_batch,
)
from records.strategies import column_sets, compressions, records
from tidelog.errors import BatchTooLarge, CorruptBatch, InvalidRequest, InvalidTimestamp, UnsupportedVersion
from tidelog.records import (
    BatchLimits,
    Columns,
    Compression,
    decode_batch,
    encode_batch,
    schema_of,
    validate_batch,
)
from tidelog.records.limits import BATCH_BYTES_HARD_MAX, DECODED_BYTES_HARD_MAX

ALL = Columns.KEY | Columns.HEADERS | Columns.SUBJECT
LIMITS = BatchLimits()

# Field nodes and buffers of a batch with every column, depth first.
KEY, VALUE, HEADERS, ITEM, ITEM_KEY, ITEM_VALUE, SUBJECT, TIMESTAMP = range(8)
(
    KEY_VALIDITY, KEY_OFFSETS, KEY_DATA,
    VALUE_VALIDITY, VALUE_OFFSETS, VALUE_DATA,
    HEADERS_VALIDITY, HEADERS_OFFSETS,
    ITEM_VALIDITY,
    ITEM_KEY_VALIDITY, ITEM_KEY_OFFSETS, ITEM_KEY_DATA,
    ITEM_VALUE_VALIDITY, ITEM_VALUE_OFFSETS, ITEM_VALUE_DATA,
    SUBJECT_VALIDITY, SUBJECT_OFFSETS, SUBJECT_DATA,
    TIMESTAMP_VALIDITY, TIMESTAMP_DATA,
) = range(20)  # fmt: skip


def validate(batch: bytes, limits: BatchLimits = LIMITS) -> None:
    validate_batch(batch, limits, now_us=T0)


def refused(batch: bytes, says: str | None = None, error: type[InvalidRequest] = CorruptBatch) -> None:
    with pytest.raises(error, match=says) as caught:
        validate(batch)
    assert caught.value.definite
    assert not caught.value.retriable


def forgery(compression: Compression = Compression.NONE, present: Columns = ALL) -> Forgery:
    return Forgery.of(sample_batch(present, compression))


# --- The forge is honest where nothing is changed.


@given(records, column_sets, compressions)
def test_what_the_forge_leaves_as_it_was_is_accepted_and_read_alike(
    wanted: list[dict[str, Any]], present: Columns, compression: Compression
) -> None:
    batch = encode_batch(columns_from(wanted, present), compression=compression)

    forged = Forgery.of(batch).batch()

    validate(forged)
    assert twin.records_of(decode_batch(forged)) == only(wanted, present)


# --- The header


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"magic": b"TLB2"}, CorruptBatch, "TLB1"),
        ({"length": 80}, CorruptBatch, "were sent"),
        ({"length": 1 << 31}, CorruptBatch, "but only"),
        ({"length": 12345}, CorruptBatch, "multiple of 8"),
        ({"base_offset": 1}, CorruptBatch, "8–31"),
        ({"append_time_us": -1}, CorruptBatch, "8–31"),
        ({"leader_epoch": 1}, CorruptBatch, "8–31"),
        ({"header_crc": 1}, CorruptBatch, "8–31"),
        ({"reserved": 1}, CorruptBatch, "62–63"),
        ({"body_crc": 0}, CorruptBatch, "body CRC"),
        ({"schema_version": 0}, UnsupportedVersion, "schema version 0"),
        ({"schema_version": 2}, UnsupportedVersion, "schema version 2"),
        ({"attributes": 3 | ALL}, UnsupportedVersion, "attributes"),
        ({"attributes": 1 << 8 | ALL}, UnsupportedVersion, "attributes"),
        ({"attributes": 1 << 15 | ALL}, UnsupportedVersion, "attributes"),
        ({"attributes": 1 << 5 | ALL}, CorruptBatch, "only brokers set"),
        ({"attributes": 1 << 6 | ALL}, CorruptBatch, "only brokers set"),
        ({"attributes": 1 << 7 | ALL}, CorruptBatch, "only brokers set"),
        ({"attributes": 1 | ALL}, CorruptBatch, "compression"),
        ({"attributes": int(Columns.KEY)}, CorruptBatch, "nodes"),
        ({"record_count": 0, "last_offset_delta": 0}, CorruptBatch, "0 records"),
        ({"record_count": 0, "last_offset_delta": 0xFFFFFFFF}, CorruptBatch, "0 records"),
        ({"record_count": 4, "last_offset_delta": 3}, CorruptBatch, "4 records"),
        ({"record_count": (1 << 20) + 1, "last_offset_delta": 1 << 20}, CorruptBatch, "1048576 records"),
        ({"last_offset_delta": 3}, CorruptBatch, "delta"),
        ({"base_sequence": 1}, CorruptBatch, "producer id"),
        ({"producer_epoch": 1}, CorruptBatch, "producer id"),
        ({"timestamp_min_us": T0 - 6}, CorruptBatch, "timestamps"),
        ({"timestamp_max_us": T0 + 6}, CorruptBatch, "timestamps"),
    ],
)
def test_a_wrong_header_field_is_refused(
    fields: dict[str, int], error: type[InvalidRequest], says: str
) -> None:
    refused(reseal(sample_batch(ALL), **fields), says, error)


def test_a_batch_over_the_streams_limit_is_refused_with_the_limit() -> None:
    batch = sample_batch(ALL)
    validate(batch, BatchLimits(batch_bytes_max=len(batch)))

    with pytest.raises(BatchTooLarge, match="batch_bytes_max") as caught:
        validate(batch, BatchLimits(batch_bytes_max=len(batch) - 1))

    assert caught.value.details == {"batch_bytes_max": str(len(batch) - 1)}


def test_a_batch_that_decodes_to_more_than_the_limit_is_refused_with_the_limit() -> None:
    batch = encode_batch(
        columns_from([{"value": bytes(100_000), "timestamp": T0}], Columns.NONE), compression=Compression.ZSTD
    )
    assert len(batch) < 1000
    validate(batch, BatchLimits(batch_decoded_bytes_max=100_100))

    with pytest.raises(BatchTooLarge, match="batch_decoded_bytes_max"):
        validate(batch, BatchLimits(batch_decoded_bytes_max=100_000))


@pytest.mark.parametrize("value", [0, -1, BATCH_BYTES_HARD_MAX + 1])
def test_limits_of_a_batch_that_make_no_sense_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="batch_bytes_max"):
        BatchLimits(batch_bytes_max=value)


@pytest.mark.parametrize("value", [0, -1, DECODED_BYTES_HARD_MAX + 1])
def test_limits_of_a_decoded_batch_that_make_no_sense_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="batch_decoded_bytes_max"):
        BatchLimits(batch_decoded_bytes_max=value)


def test_timestamps_may_lie_ahead_of_the_clock_by_as_much_as_is_configured() -> None:
    batch = sample_batch()  # its largest timestamp is T0 + 7
    validate_batch(batch, LIMITS, now_us=0)
    validate_batch(batch, LIMITS, now_us=T0, timestamp_ahead_us_max=7)

    with pytest.raises(InvalidTimestamp, match="timestamp_ahead_ms_max"):
        validate_batch(batch, LIMITS, now_us=T0, timestamp_ahead_us_max=6)


# --- The message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.but(trailing=bytes(8)), "ends after"),
        (lambda f: f.but(body_length=0), "leaves the body"),
        (lambda f: f.but(body_length=-8), "leaves the body"),
        (lambda f: f.but(body_length=1 << 62), "ends after"),
        (lambda f: f.but(version=3), "version 4"),
        (lambda f: f.but(kind=0), "type 0"),
        (lambda f: f.but(kind=1), "type 1"),
        (lambda f: f.but(kind=2), "type 2"),
        (lambda f: f.but(kind=4), "type 4"),
        (lambda f: f.but(custom_metadata=True), "custom metadata"),
        (lambda f: f.but(variadic=[1]), "variadic"),
        (lambda f: f.but(unknown_fields=1), "vtable"),
        (lambda f: f.but(padding=4, trailing=bytes(4)), "does not fit"),
        (lambda f: f.but(padding=20_000), "metadata"),
        (lambda f: f.but(rows=2), "2 rows"),
        (lambda f: f.but(rows=-1), "-1 rows"),
        (lambda f: f.but(rows=1 << 40), "rows"),
        (lambda f: f.but(nodes=f.nodes[:-1]), "7 nodes"),
        (lambda f: f.but(nodes=[*f.nodes, (3, 0)]), "9 nodes"),
        (lambda f: f.but(nodes=[]), "0 nodes"),
        (lambda f: f.but(buffers=f.buffers[:-1]), "19 buffers"),
        (lambda f: f.but(buffers=[*f.buffers, b"hidden"]), "21 buffers"),
        (lambda f: f.but(codec=0), "compression"),
        (lambda f: f.but(codec=1), "compression"),
        (lambda f: f.but(codec=2), "codec 2"),
        (lambda f: f.but(codec=0, method=1), "method 1"),
    ],
)
def test_a_message_of_another_form_is_refused(change: Callable[[Forgery], Forgery], says: str) -> None:
    refused(change(forgery()).batch(), says)


@pytest.mark.parametrize(
    ("offset", "length"),
    [(-8, 8), (0, -1), (0, -(1 << 63)), (1 << 62, 8), (1 << 62, 1 << 62), (4, 8), (0, 1 << 40), (1 << 62, 0)],
)
def test_a_buffer_outside_the_body_or_off_its_alignment_is_refused(offset: int, length: int) -> None:
    for index in range(20):
        refused(forgery().with_place(index, offset, length).batch(), "buffer")


def test_two_buffers_in_the_same_place_are_refused() -> None:
    forged = forgery()

    refused(forged.with_place(VALUE_DATA, *forged.honest_places()[KEY_OFFSETS]).batch(), "overlaps")


def test_a_gap_between_buffers_is_no_harm() -> None:
    forged = forgery()
    places = [(at + 64, size) for at, size in forged.honest_places()]
    body = bytes(64) + b"".join(one + bytes(-len(one) % 8) for one in forged.buffers)

    batch = forged.but(places=places, body=body).batch()

    validate(batch)
    assert twin.records_of(decode_batch(batch)) == twin.read_records(batch) == RECORDS


def test_an_empty_buffer_may_lie_anywhere_in_the_body() -> None:
    forged = forgery()
    assert forged.buffers[TIMESTAMP_VALIDITY] == b""

    validate(forged.with_place(TIMESTAMP_VALIDITY, 0, 0).batch())
    refused(forged.with_place(TIMESTAMP_VALIDITY, 1 << 30, 0).batch(), "leaves the body")


def test_an_empty_list_of_variadic_buffers_is_no_harm() -> None:
    validate(forgery().but(variadic=[]).batch())


def real_messages() -> dict[str, bytes]:
    """Messages that Arrow itself writes and that are not one record batch of ours."""
    columns = columns_from(RECORDS, Columns.NONE)
    dictionary = columns.set_column(0, "value", columns.column("value").dictionary_encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, dictionary.schema) as writer:
        writer.write_batch(dictionary)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    schema, first, second = (reader.read_next_message().serialize().to_pybytes() for _ in range(3))
    wider = columns.append_column("extra", pa.array([1, 2, 3]))
    twice = columns.serialize().to_pybytes() * 2
    return {
        "schema": schema,
        "dictionary batch": first,
        "batch with dictionary indices": second,
        "extra column": wider.serialize().to_pybytes(),
        "batch twice": twice,
        "large types": columns.cast(pa.schema([("value", pa.large_binary()), ("timestamp", pa.int64())]))
        .serialize()
        .to_pybytes(),
        "end of stream": b"\xff\xff\xff\xff" + bytes(4),
        "nothing": b"",
    }


@pytest.mark.parametrize("name", sorted(real_messages()))
def test_a_real_arrow_message_of_another_kind_is_refused(name: str) -> None:
    message = real_messages()[name]

    with pytest.raises(CorruptBatch):
        validate(reseal(sample_batch()[:80] + message + bytes(-len(message) % 8)))


def test_a_real_batch_with_custom_metadata_is_refused() -> None:
    columns = columns_from(RECORDS, Columns.NONE)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_batch(columns, custom_metadata={"hidden": "thing"})
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()

    message = reader.read_next_message().serialize().to_pybytes()

    refused(reseal(sample_batch()[:80] + message), "custom metadata")


def test_bytes_behind_a_whole_batch_are_refused() -> None:
    batch = sample_batch()

    refused(batch + bytes(8), "were sent")
    refused(reseal(batch + bytes(8)), "ends after")


# --- Tables of the flatbuffer


def message_table(batch: bytes) -> int:
    """Where the Message table lies in a batch."""
    return 88 + int.from_bytes(batch[88:92], "little")


def test_an_offset_of_a_table_that_points_outside_is_refused() -> None:
    batch = sample_batch(ALL)
    for value in (1 << 16, 1 << 31, 0xFFFFFFFF):
        refused(reseal(batch[:88] + struct.pack("<I", value) + batch[92:]), "outside")


def test_a_vtable_in_front_of_the_metadata_or_behind_it_is_refused() -> None:
    batch = sample_batch(ALL)
    at = message_table(batch)
    for value in (1 << 20, -(1 << 20), (1 << 31) - 1, -(1 << 31)):
        refused(reseal(batch[:at] + struct.pack("<i", value) + batch[at + 4 :]), "metadata")


def test_a_vtable_of_an_odd_or_unknown_size_is_refused() -> None:
    batch = sample_batch(ALL)
    at = message_table(batch)
    vtable = at - struct.unpack_from("<i", batch, at)[0]
    for size in (0, 2, 3, 5, 13, 16, 0xFFFF):
        refused(reseal(batch[:vtable] + struct.pack("<H", size) + batch[vtable + 2 :]), "vtable")


def test_a_table_that_points_to_itself_ends_in_an_error() -> None:
    batch = sample_batch(ALL)
    at = message_table(batch)
    vtable = at - struct.unpack_from("<i", batch, at)[0]
    header_slot = vtable + 4 + 2 * 2
    field = at + struct.unpack_from("<H", batch, header_slot)[0]

    refused(reseal(batch[:field] + bytes(4) + batch[field + 4 :]))


# --- Nulls


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(
    ("node", "validity", "rows"),
    [
        (HEADERS, HEADERS_VALIDITY, 3),
        (ITEM, ITEM_VALIDITY, 3),
        (ITEM_KEY, ITEM_KEY_VALIDITY, 3),
        (TIMESTAMP, TIMESTAMP_VALIDITY, 3),
    ],
)
def test_nulls_where_none_may_be_are_refused_whether_counted_or_hidden(
    node: int, validity: int, rows: int, compression: Compression
) -> None:
    forged = forgery(compression)
    bitmap = compressed(b"\x05" + bytes(7), forged.codec)

    counted = forged.with_node(node, rows, 1).with_buffer(validity, bitmap)
    hidden = forged.with_node(node, rows, 0).with_buffer(validity, bitmap)
    uncovered = forged.with_node(node, rows, 1).with_buffer(validity, b"")

    refused(counted.batch(), "nulls are not allowed")
    refused(hidden.batch(), "claims 0 nulls, but its bitmap has 1")
    refused(uncovered.batch(), "null")


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(
    ("node", "validity", "nulls"),
    [
        (KEY, KEY_VALIDITY, 1),
        (VALUE, VALUE_VALIDITY, 1),
        (ITEM_VALUE, ITEM_VALUE_VALIDITY, 1),
        (SUBJECT, SUBJECT_VALIDITY, 1),
    ],
)
def test_a_null_count_that_is_not_that_of_the_bitmap_is_refused(
    node: int, validity: int, nulls: int, compression: Compression
) -> None:
    forged = forgery(compression)
    assert forged.nodes[node] == (3, nulls)

    for lie in (0, 2, 3):
        refused(forged.with_node(node, 3, lie).batch(), "null")
    for lie in (-1, 4, 1 << 62):
        refused(forged.with_node(node, 3, lie).batch(), "nulls")
    refused(forged.with_buffer(validity, b"").batch(), "without a bitmap")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_bitmap_of_ones_where_there_are_no_nulls_is_no_harm(compression: Compression) -> None:
    forged = forgery(compression)
    for validity in (HEADERS_VALIDITY, ITEM_VALIDITY, ITEM_KEY_VALIDITY, TIMESTAMP_VALIDITY):
        for bitmap in (b"\x07", b"\xff" * 8, b"\x07" + bytes(63)):
            batch = forged.with_buffer(validity, compressed(bitmap, forged.codec)).batch()
            validate(batch)
            assert twin.records_of(decode_batch(batch)) == twin.read_records(batch) == RECORDS


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_compressed_bitmap_that_ends_before_its_claim_is_refused(compression: Compression) -> None:
    forged = forgery(compression)
    for claim in (2, 8, 64):
        bitmap = compressed(b"\x07", forged.codec, claim=claim)
        refused(forged.with_buffer(TIMESTAMP_VALIDITY, bitmap).batch(), "bitmap")


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_bitmap_bomb_is_refused(compression: Compression) -> None:
    forged = forgery(compression)
    bomb = compressed(b"\xff" * (4 << 20), forged.codec)
    for index in (KEY_VALIDITY, ITEM_VALIDITY, TIMESTAMP_VALIDITY):
        refused(forged.with_buffer(index, bomb).batch(), "validity bitmap")


# --- Lengths, offsets, text


@pytest.mark.parametrize("node", [KEY, VALUE, HEADERS, SUBJECT, TIMESTAMP])
def test_a_column_of_another_length_than_the_batch_is_refused(node: int) -> None:
    for length in (0, 2, 4, -1, 1 << 62):
        refused(forgery().with_node(node, length, 0).batch(), "rows")


@pytest.mark.parametrize("node", [ITEM, ITEM_KEY, ITEM_VALUE])
def test_a_nested_column_of_another_length_than_its_struct_is_refused(node: int) -> None:
    for length in (0, 1, 2, 4, 1000, 1 << 20, 1 << 40, -1):
        refused(forgery().with_node(node, length, 0).batch())


@pytest.mark.parametrize(
    ("node", "offsets"), [(ITEM_KEY, ITEM_KEY_OFFSETS), (ITEM_VALUE, ITEM_VALUE_OFFSETS)]
)
def test_a_nested_column_that_goes_on_behind_its_struct_is_refused(node: int, offsets: int) -> None:
    """Arrow's validation lets it pass; some other readers do not."""
    forged = forgery()
    nulls = forged.nodes[node][1]
    longer = forged.buffers[offsets] + forged.buffers[offsets][-4:]

    refused(
        forged.with_buffer(offsets, longer).with_node(node, 4, nulls).batch(), "its struct has another number"
    )


def test_a_header_list_that_reaches_beyond_its_items_is_refused() -> None:
    for offsets in ((0, 2, 2, 4), (0, 2, 2, 1 << 30), (0, 0, 0, -1), (-1, 2, 2, 3), (0, 3, 2, 3)):
        refused(forgery().with_buffer(HEADERS_OFFSETS, struct.pack("<4i", *offsets)).batch(), "Arrow")


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("offsets", [KEY_OFFSETS, VALUE_OFFSETS, ITEM_KEY_OFFSETS, SUBJECT_OFFSETS])
def test_offsets_that_decrease_are_negative_or_leave_the_data_are_refused(
    offsets: int, compression: Compression
) -> None:
    forged = forgery(compression)
    for lie in ((0, 2, 1, 2), (-1, 0, 0, 2), (0, 0, 0, 1 << 20), (0, 0, 0, (1 << 31) - 1)):
        stored = compressed(struct.pack("<4i", *lie), forged.codec)
        refused(forged.with_buffer(offsets, stored).batch(), "Arrow")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_buffer_that_is_too_short_for_its_column_is_refused(compression: Compression) -> None:
    forged = forgery(compression)
    for index, size in ((KEY_OFFSETS, 8), (HEADERS_OFFSETS, 12), (TIMESTAMP_DATA, 16), (VALUE_OFFSETS, 15)):
        short = compressed(twin.plain(forged.buffers[index], forged.codec)[:size], forged.codec)
        refused(forged.with_buffer(index, short).batch(), "Arrow")


@pytest.mark.parametrize("index", [ITEM_KEY_DATA, SUBJECT_DATA])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_text_that_is_not_utf_8_is_refused(index: int, compression: Compression) -> None:
    forged = forgery(compression)
    text = b"\xff" * len(twin.plain(forged.buffers[index], forged.codec))

    refused(forged.with_buffer(index, compressed(text, forged.codec)).batch(), "UTF8")


def test_bytes_under_a_null_subject_must_be_utf_8_as_well() -> None:
    forged = forgery()
    assert forged.nodes[SUBJECT] == (3, 1)
    lie = forged.with_buffer(SUBJECT_OFFSETS, struct.pack("<4i", 0, 1, 3, 4)).with_buffer(
        SUBJECT_DATA, b"a\xff\xfeb"
    )
    fine = lie.with_buffer(SUBJECT_DATA, b"axyb")

    refused(lie.batch(), "UTF8")
    validate(fine.batch())


def test_text_that_a_multibyte_character_crosses_an_offset_of_is_refused() -> None:
    forged = forgery().with_buffer(SUBJECT_OFFSETS, struct.pack("<4i", 0, 1, 1, 2))

    refused(forged.with_buffer(SUBJECT_DATA, "ü".encode()).batch(), "UTF8")


# --- Compressed buffers


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("claim", [-(1 << 63), -2, 0, 1, 3, (1 << 31) - 1, 1 << 40, (1 << 63) - 1])
def test_a_length_prefix_that_lies_is_refused(compression: Compression, claim: int) -> None:
    forged = forgery(compression)
    for index in (KEY_OFFSETS, VALUE_DATA, SUBJECT_DATA, TIMESTAMP_DATA):
        stored = forged.buffers[index]
        assert twin.plain(stored, forged.codec)
        lie = forged.with_buffer(index, struct.pack("<q", claim) + stored[8:])
        with pytest.raises((CorruptBatch, BatchTooLarge)):
            validate(lie.batch())


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_compressed_buffer_without_room_for_its_prefix_is_refused(compression: Compression) -> None:
    for size in range(1, 8):
        refused(forgery(compression).with_buffer(TIMESTAMP_DATA, bytes(size)).batch(), "no room")


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_buffers_left_plain_inside_a_compressed_body_are_read_as_they_are(compression: Compression) -> None:
    forged = forgery(compression)
    stored = [stored_plain(twin.plain(one, forged.codec)) if one else one for one in forged.buffers]

    batch = forged.but(buffers=stored).batch()

    validate(batch)
    assert twin.records_of(decode_batch(batch)) == twin.read_records(batch) == RECORDS


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_the_other_codec_inside_a_compressed_body_is_refused(compression: Compression) -> None:
    forged = forgery(compression)
    assert forged.codec is not None
    other = 1 - forged.codec
    for index in (VALUE_DATA, KEY_VALIDITY, TIMESTAMP_DATA):
        plain = twin.plain(forged.buffers[index], forged.codec)
        refused(forged.with_buffer(index, compressed(plain, other)).batch())


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_ten_kilobytes_that_claim_300_megabytes_are_refused_by_their_claim(compression: Compression) -> None:
    forged = forgery(compression)
    bomb = compressed(bytes(1 << 20), forged.codec, claim=300 << 20)[:10_000]

    refused(forged.with_buffer(VALUE_DATA, bomb).batch(), "batch_decoded_bytes_max", BatchTooLarge)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_negative_length_does_not_make_room_for_a_bomb(compression: Compression) -> None:
    forged = forgery(compression)
    bomb = forged.with_buffer(KEY_DATA, compressed(bytes(1 << 20), forged.codec, claim=300 << 20))

    refused(
        bomb.with_buffer(VALUE_DATA, compressed(b"x", forged.codec, claim=-(1 << 60))).batch(), "claims -"
    )


def test_a_codec_with_a_field_that_v5_does_not_define_is_refused() -> None:
    refused(forgery(Compression.LZ4).but(unknown_codec_fields=1).batch(), "vtable")


def test_the_decoded_size_is_that_of_all_buffers_together() -> None:
    forged = forgery(Compression.ZSTD)
    share = (64 << 20) // 20 + 1
    stored = [compressed(b"x", forged.codec, claim=share) for _ in forged.buffers]

    refused(forged.but(buffers=stored).batch(), str(share * 20), BatchTooLarge)


@pytest.mark.parametrize("present", COLUMN_SETS)
def test_the_column_bits_and_the_body_must_agree(present: Columns) -> None:
    batch = sample_batch(present)
    for other in COLUMN_SETS:
        if other == present:
            validate(batch)
        elif (present, other) != (Columns.SUBJECT, Columns.KEY):
            # A subject alone has the form of a key alone (and text is binary): there it is
            # only the bits, which the CRC covers, that name a column.
            refused(reseal(batch, attributes=int(other)))


def test_all_schemas_are_distinct_and_in_the_documented_order() -> None:
    order = ["key", "value", "headers", "subject", "timestamp", "offset_delta"]
    names = {tuple(schema_of(present, compacted=c).names) for present in COLUMN_SETS for c in (False, True)}

    assert len(names) == 16
    assert all(list(one) == [name for name in order if name in one] for one in names)
