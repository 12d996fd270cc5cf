"""The 80 bytes: fields against their twin, both CRCs, what the leader stamps (F2, F6)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from records import twin
from records.samples import STREAM_ID, sample_batch
from records.strategies import header_fields, i64, u32
from tidelog.errors import CorruptBatch, DataCorrupt
from tidelog.records import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    header_crc,
    split_batches,
    stamp,
    verify_batch,
)
from tidelog.records.checksum import crc32c

PLACE: dict[str, Any] = {"stream_id": STREAM_ID, "partition": 3}


def stamped(base_offset: int = 1000, **fields: int) -> bytes:
    sent = sample_batch()
    head = stamp(
        sent,
        **PLACE,
        base_offset=base_offset,
        append_time_us=fields.get("append_time_us", 1_767_225_600_000_001),
        leader_epoch=fields.get("leader_epoch", 7),
    )
    return head + sent[HEADER_BYTES:]


def verify(batch: bytes, stream_id: bytes = STREAM_ID, partition: int = 3) -> None:
    verify_batch(batch, BatchHeader.unpack(batch), stream_id, partition)


@given(header_fields)
def test_a_header_packs_to_the_bytes_that_the_twin_writes_field_by_field(fields: dict[str, Any]) -> None:
    assert BatchHeader(**fields).pack() == twin.write_header(fields)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES), st.integers(0, 9))
def test_any_80_bytes_unpack_to_the_fields_that_the_twin_reads_and_pack_back(raw: bytes, at: int) -> None:
    header = BatchHeader.unpack(bytes(at) + raw, at)

    assert header._asdict() == twin.read_header(raw)
    assert header.pack() == raw


@given(st.binary(max_size=200), st.integers(0, 200))
def test_the_checksum_is_crc_32c_for_bytes_views_and_buffers_at_once_or_in_parts(
    data: bytes, cut: int
) -> None:
    expected = twin.crc32c(data)

    assert crc32c(data) == crc32c(memoryview(data)) == crc32c(pa.py_buffer(data)) == expected
    assert crc32c(data[cut:], crc32c(data[:cut])) == expected


def test_the_checksum_of_the_digits_is_the_one_that_the_literature_gives() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@given(i64, i64, u32, u32, st.binary(min_size=16, max_size=16))
def test_a_stamp_sets_the_leaders_fields_and_its_crc_and_leaves_the_clients_alone(
    base_offset: int, append_time_us: int, leader_epoch: int, partition: int, stream_id: bytes
) -> None:
    sent = sample_batch(producer_id=5, base_sequence=6, producer_epoch=7)

    head = stamp(
        memoryview(sent),
        stream_id=stream_id,
        partition=partition,
        base_offset=base_offset,
        append_time_us=append_time_us,
        leader_epoch=leader_epoch,
    )

    expected = twin.read_header(sent) | {
        "base_offset": base_offset,
        "append_time_us": append_time_us,
        "leader_epoch": leader_epoch,
    }
    expected["header_crc"] = twin.header_crc(stream_id, partition, twin.write_header(expected))
    assert head == twin.write_header(expected)
    assert header_crc(stream_id, partition, head) == expected["header_crc"]
    verify_batch(head + sent[HEADER_BYTES:], BatchHeader.unpack(head), stream_id, partition)


def test_any_flipped_bit_of_a_stored_batch_fails_one_of_the_two_crcs() -> None:
    good = stamped()
    verify(good)
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataCorrupt, match="CRC"):
            verify(bytes(bad))


def test_a_flip_fails_the_header_crc_in_the_leaders_fields_and_the_body_crc_behind() -> None:
    good = stamped()
    for byte in range(len(good)):
        bad = bytearray(good)
        bad[byte] ^= 0x10
        with pytest.raises(DataCorrupt, match="header CRC" if byte < 32 else "body CRC"):
            verify(bytes(bad))


def test_a_body_crc_forged_together_with_the_body_fails_the_header_crc() -> None:
    bad = bytearray(stamped())
    bad[-1] ^= 1
    bad[32:36] = crc32c(bytes(bad[36:])).to_bytes(4, "little")

    with pytest.raises(DataCorrupt, match="header CRC"):
        verify(bytes(bad))


def test_a_batch_of_another_stream_or_partition_fails_its_header_crc() -> None:
    batch = stamped()
    for bit in range(128):
        other = bytearray(STREAM_ID)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataCorrupt, match="header CRC"):
            verify(batch, bytes(other))
    for bit in range(32):
        with pytest.raises(DataCorrupt, match="header CRC"):
            verify(batch, partition=3 ^ 1 << bit)


def test_a_failed_crc_names_the_offset_of_its_batch() -> None:
    batch = stamped(base_offset=4711)

    with pytest.raises(DataCorrupt) as caught:
        verify(batch[:-8] + bytes(8))

    assert caught.value.details == {"offset": "4711"}
    assert "4711" in str(caught.value)


def test_offsets_of_a_header_follow_from_its_base_offset_and_delta() -> None:
    header = BatchHeader.unpack(stamped(base_offset=40))

    assert (header.last_offset, header.next_offset) == (42, 43)


def test_a_sent_batch_has_zeros_in_the_leaders_fields_and_no_producer_by_default() -> None:
    sent = sample_batch()

    assert sent[8:32] == bytes(24)
    assert BatchHeader.unpack(sent).producer_id == NO_PRODUCER_ID


def test_batches_lying_one_after_the_other_are_split_where_they_begin() -> None:
    batches = [stamped(base_offset=n) for n in (0, 3, 6)]

    found = list(split_batches(b"".join(batches)))

    assert [bytes(batch) for _, batch in found] == batches
    assert [header.base_offset for header, _ in found] == [0, 3, 6]
    assert list(split_batches(b"")) == []


def test_every_truncation_of_two_batches_is_refused_except_between_them() -> None:
    first, second = stamped(), stamped(base_offset=3)
    both = first + second
    for end in range(1, len(both)):
        if end == len(first):
            continue
        with pytest.raises(CorruptBatch):
            list(split_batches(both[:end]))


@pytest.mark.parametrize("length", [0, 1, 8, 72, 79, 81, 84, 0xFFFFFFFF, 0xFFFFFFF8])
def test_a_length_that_cannot_be_right_ends_the_split_with_an_error(length: int) -> None:
    batch = stamped()

    with pytest.raises(CorruptBatch, match=r"length|but only"):
        list(split_batches(batch[:4] + length.to_bytes(4, "little") + batch[8:]))


@given(st.binary(max_size=300))
def test_splitting_arbitrary_bytes_ends_with_a_typed_error_or_all_of_them(data: bytes) -> None:
    try:
        found = list(split_batches(data))
    except CorruptBatch:
        return
    assert b"".join(bytes(batch) for _, batch in found) == data
