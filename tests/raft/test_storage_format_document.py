"""docs/storage-format.md against the code: what it says of the metadata log's files is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raft.samples import OTHER, RAFT, VOTERS, append, entry, names, new_disk, open_log
from tidelog.records.checksum import crc32c
from tidelog_broker.model import PAYLOAD_BYTES_MAX, Entry, EntryType, HardState, Snapshot
from tidelog_broker.storage.raft.format import pack_entry, pack_hard_state, pack_snapshot

TEXT = (Path(__file__).parents[2] / "docs" / "storage-format.md").read_text(encoding="utf-8")


def fields(heading: str) -> list[tuple[int | None, str]]:
    """Size, None if it varies, and meaning, by the table of a section."""
    found = re.search(rf"^### {re.escape(heading)}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no section {heading!r}"
    rows = re.findall(r"^\| *(\d*) *\| (.*) \|$", found[1], re.MULTILINE)
    return [(int(size) if size else None, says) for size, says in rows if not says.startswith("field")]


def places(heading: str) -> dict[str, tuple[int, int]]:
    """Where the fields before the first that varies lie, by how their meaning begins."""
    found, at = {}, 0
    for size, says in fields(heading):
        if size is None:
            break
        found[says.split(",")[0].split(":")[0]] = (at, at + size)
        at += size
    return found


def number(data: bytes, place: tuple[int, int]) -> int:
    return int.from_bytes(data[slice(*place)], "little")


def test_an_entry_is_as_the_document_says() -> None:
    data = pack_entry(Entry(7, 3, EntryType.NOOP, b"12345"), durable=5)
    at = places("Entries of the metadata log")

    assert data[:4] == b"TLE1"
    assert number(data, at["length of the payload"]) == 5
    assert number(data, at["1 command"]) == int(EntryType.NOOP) == 3
    assert [number(data, at[name]) for name in ("index", "term", "zeros")] == [7, 3, 0]
    assert number(data, at["the last index that was known to be on disk when this entry was written"]) == 5
    start = max(end for _, end in at.values())
    assert data[start:] == b"12345\0\0\0"
    first, end = at["checksum of everything but this field"]
    assert number(data, (first, end)) == crc32c(data[end:], crc32c(data[:first]))
    assert PAYLOAD_BYTES_MAX == 64 << 20


@pytest.mark.parametrize("state", [HardState(7, OTHER, 300), HardState(7, None, 300)])
def test_the_hard_state_is_as_the_document_says(state: HardState) -> None:
    data = pack_hard_state(state)
    at = places("Hard state")
    sizes = [size or 0 for size, _ in fields("Hard state")]

    assert data[:4] == b"TLH1"
    assert [number(data, at[name]) for name in ("term", "commit")] == [7, 300]
    assert number(data, at["bit 0"]) == (0b11 if state.vote else 0)
    if state.vote is not None:
        assert (
            number(data, at["number of the broker that has the vote of this voter in the term"])
            == state.vote.broker_id
        )
        assert data[slice(*at["directory id of that broker"])] == state.vote.directory_id
    assert len(data) == sum(sizes) - (0 if state.vote else 16)
    assert number(data[-4:], (0, 4)) == crc32c(data[:-4])


def test_a_snapshot_is_as_the_document_says() -> None:
    data = pack_snapshot(Snapshot(9, 4, VOTERS, b"image"))
    at = places("Snapshots of the metadata log")
    configuration = VOTERS.encode()

    assert data[:4] == b"TLS1"
    assert [number(data, at[name]) for name in ("index", "term of the entry at the index")] == [9, 4]
    assert number(data, at["length of the configuration"]) == len(configuration)
    assert number(data, at["length of the image"]) == 5
    start = max(end for _, end in at.values())
    assert data[start:-4] == configuration + b"image"
    assert number(data[-4:], (0, 4)) == crc32c(data[:-4])


def test_the_folder_holds_the_files_that_the_document_names() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, 2, 3)
    log.save_snapshot(VOTERS, 2, b"image")
    said = re.findall(r"^\| `([^`]+)` \|", TEXT.split("## Metadata log")[1], re.MULTILINE)

    found = {re.sub(r"\d{20}-\d{20}", "<index>-<term>", name) for name in names(disk)}

    assert said == ["%020d.log", "hard-state", "snapshot-<index>-<term>", "install-<index>-<term>"]
    assert {re.sub(r"\d{20}", "%020d", name) for name in found} == set(said[:3])
    seen: set[str] = set()
    disk.before = lambda _: seen.update(disk.list(RAFT))
    log.save(Snapshot(9, 4, VOTERS, b"image"), [entry(10, 4)], None)
    assert f"install-{9:020d}-{4:020d}" in seen
