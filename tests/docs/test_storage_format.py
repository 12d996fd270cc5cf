"""docs/storage-format.md: its tables and examples of the record batch are those of the code."""

from __future__ import annotations

import re
import struct
import uuid
from pathlib import Path

import pytest

from tidelog import errors
from tidelog.records import (
    HEADER_BYTES,
    BatchHeader,
    BatchLimits,
    Columns,
    Compression,
    decode_batch,
    layout,
    limits,
    message,
    schema_of,
    stamp,
    validate_batch,
)
from tidelog.records.checksum import crc32c

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "storage-format.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text under a third-level heading."""
    found = re.search(rf"^### {re.escape(heading)}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no section {heading!r}"
    return found[1]


def table(text: str) -> list[list[str]]:
    """The rows of the first table, without its head."""
    lines = text.split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def dumps() -> list[bytes]:
    """The hex dumps of the example, in their order."""
    blocks = re.findall(r"^```\n(.*?)^```", section("An example"), re.MULTILINE | re.DOTALL)
    return [bytes.fromhex("".join(line[4:] for line in block.splitlines())) for block in blocks]


def test_the_header_table_has_the_fields_offsets_and_sizes_of_the_code() -> None:
    code: dict[str, str | dict[int, str]] = {
        "signed": "q",
        "unsigned": {2: "H", 4: "I", 8: "Q"},
        "`TLB1`": "4s",
    }
    rows = table(section("Header"))

    names = [field.replace(" ", "_") for _, _, field, _, _ in rows]
    form = "<"
    at = 0
    for offset, size, _, kind, _ in rows:
        assert int(offset) == at
        at += int(size)
        letter = code[kind]
        form += letter if isinstance(letter, str) else letter[int(size)]

    assert at == HEADER_BYTES
    assert names == list(BatchHeader._fields)
    assert struct.calcsize(form) == HEADER_BYTES
    packed = bytes(range(HEADER_BYTES))
    assert struct.unpack(form, packed) == tuple(BatchHeader.unpack(packed))


def test_a_stamp_changes_the_fields_that_the_leader_sets() -> None:
    sent = dumps()[0]
    head = stamp(
        sent, stream_id=bytes(16), partition=1, base_offset=-1, append_time_us=-1, leader_epoch=0xFFFFFFFF
    )

    before, after = BatchHeader.unpack(sent), BatchHeader.unpack(head)

    changed = {name for name in BatchHeader._fields if getattr(before, name) != getattr(after, name)}
    said = {field.replace(" ", "_") for _, _, field, _, who in table(section("Header")) if who == "leader"}
    assert changed == said


def test_the_attribute_table_has_the_bits_of_the_code() -> None:
    rows = {bits: (says, who) for bits, says, who in table(section("Attributes"))}

    assert rows["0–1"][0].endswith("0 none, 1 LZ4 frame, 2 Zstandard")
    assert [int(one) for one in (Compression.NONE, Compression.LZ4, Compression.ZSTD)] == [0, 1, 2]
    for column in (Columns.KEY, Columns.HEADERS, Columns.SUBJECT):
        bit = str(int(column).bit_length() - 1)
        assert rows[bit] == (f"the {str(column.name).lower()} column is there", "client")
    for flag, word in (
        (layout.COMPACTED, "compacted"),
        (layout.CONTROL, "control"),
        (layout.HAS_MESSAGE_IDS, "Nats-Msg-Id"),
    ):
        says, who = rows[str(flag.bit_length() - 1)]
        assert word in says
        assert who == "broker"
        assert flag & layout.BROKER_ONLY_ATTRIBUTES
    assert layout.KNOWN_ATTRIBUTES == 0xFF
    assert rows["8–15"][0] == "0"


def test_the_column_table_is_the_schema_of_the_code() -> None:
    schema = schema_of(Columns.KEY | Columns.HEADERS | Columns.SUBJECT, compacted=True)
    rows = table(section("Body"))

    assert [row[0].strip("`") for row in rows] == schema.names
    for name, type_, nullable, there in rows:
        field = schema.field(name.strip("`"))
        assert type_.strip("`") == str(field.type)
        assert nullable == ("yes" if field.nullable else "no")
        if there.startswith("bit"):
            bits = 1 << int(there.removeprefix("bit "))
            assert field.name in schema_of(Columns(bits & 0b11100), compacted=bool(bits & 0x20)).names
        else:
            assert field.name in schema_of(Columns.NONE).names


def test_the_checksum_named_is_the_one_computed() -> None:
    assert f"`{crc32c(b'123456789'):08x}`" in section("Checksums")


def test_the_limits_named_are_those_of_the_code() -> None:
    text = section("What a leader refuses")

    assert BatchLimits().batch_bytes_max == 1 << 20
    assert limits.BATCH_BYTES_HARD_MAX == 64 << 20
    assert "`batch_bytes_max` (1 MiB unless configured, never over 64 MiB)" in text
    assert BatchLimits().batch_decoded_bytes_max == 64 << 20
    assert "`batch_decoded_bytes_max` (64 MiB)" in text
    assert message.METADATA_BYTES_MAX == 16 << 10
    assert "at most 16 KiB of metadata" in text
    assert f"at most {limits.RECORDS_PER_BATCH_MAX}" in section("Header")


def test_the_error_codes_named_exist() -> None:
    for code in re.findall(r"`([A-Z]{3,}_[A-Z_]+)`", TEXT):
        assert errors.error_from_code(code, "").code == code


def test_a_leader_accepts_the_batch_of_the_example() -> None:
    batch = dumps()[0]

    header = validate_batch(batch, BatchLimits(), now_us=0)

    assert header.length == len(batch) == 312
    assert decode_batch(batch).column("value").to_pylist() == [b"hello"]
    assert header.timestamp_min_us == 1767225600000000
    assert "1767225600000000" in section("An example")


def test_the_example_has_the_named_bytes_at_the_named_places() -> None:
    batch = dumps()[0]
    rows = table(section("An example"))

    assert len(rows) > 20
    for at, shown, says in rows:
        wanted = bytes.fromhex(shown.strip("`"))
        start = int(at, 16)
        assert batch[start : start + len(wanted)] == wanted, f"{at}: {says}"


def test_the_example_is_stamped_to_the_bytes_shown() -> None:
    batch, head = dumps()
    stream_id = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
    assert str(stream_id) in section("An example")

    stamped = stamp(
        batch,
        stream_id=stream_id.bytes,
        partition=3,
        base_offset=1_000_000_007,
        append_time_us=1767225600_123456,
        leader_epoch=12,
    )

    assert stamped[:32] == head
    assert stamped[32:] == batch[32:HEADER_BYTES]


@pytest.mark.parametrize("row", table(section("Test vectors")), ids=lambda row: row[0].strip("`"))
def test_each_file_of_vectors_exists(row: list[str]) -> None:
    assert (ROOT / "tests/records/vectors" / row[0].strip("`")).is_file()


def test_named_paths_exist_and_every_file_of_vectors_is_named() -> None:
    for path in re.findall(r"`((?:tests|docs|client)/[\w./-]+)`", TEXT):
        assert (ROOT / path).exists(), path
    named = {row[0].strip("`") for row in table(section("Test vectors"))}
    assert named == {path.name for path in (ROOT / "tests/records/vectors").glob("*.json")}
