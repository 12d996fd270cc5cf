"""docs/storage-format.md against the files: what it says of a partition's folder is so."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import msgspec
import pytest

from storage.batches import STREAM_ID, T0, item, records
from storage.logs import ROOT, Bench
from tidelog.records.checksum import crc32c
from tidelog_broker.storage.directory.retention import Waited
from tidelog_broker.storage.files.whole_files import read_file
from tidelog_broker.storage.folder import starting_over
from tidelog_broker.storage.folder.damage_list import save_damage
from tidelog_broker.storage.folder.identity import write_identity
from tidelog_broker.storage.segments.scan import DamagedRange

DOCUMENT = Path(__file__).parents[2] / "docs" / "storage-format.md"


def layouts(heading: str) -> list[struct.Struct]:
    """The tables of a section as structures: a column of sizes in bytes makes each."""
    text = DOCUMENT.read_text(encoding="utf-8").split("\n## Files of a partition\n")[1]
    part = text.split(f"\n### {heading}\n")[1].split("\n### ")[0]
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE):
        form = "<"
        for row in table.splitlines()[2:]:
            size = next(cell.strip() for cell in row.split("|") if cell.strip().isdigit())
            form += "4s" if "magic" in row else {"4": "I", "8": "q", "16": "16s"}[size]
        found.append(struct.Struct(form))
    return found


@pytest.fixture(scope="module")
def tree() -> dict[str, bytes]:
    bench = Bench(segment_bytes=200_000)
    bench.append(item(records(2), producer_id=9), item(records(2), ids=["m", None]))
    bench.fill(12, count=3, size=12_000)
    bench.epoch = 4
    bench.fill(3)
    bench.log.start.advance(5)
    bench.store.saved.save_waited({(STREAM_ID, 0): Waited(5, 77)})
    bench.store.checkpoints.save_retention_time(T0)
    bench.stop()
    # As a crash leaves it that comes while the log is dropped for an empty one.
    save_damage(bench.disk, bench.folder, [DamagedRange(7, 10), DamagedRange(13, 16)])
    starting_over.mark(bench.disk, bench.folder, 500)
    return {
        path.removeprefix(f"{bench.folder}/").removeprefix(f"{ROOT}/"): content
        for path, content in bench.disk.tree().items()
    }


def checked(data: bytes) -> bytes:
    """`data` without the checksum behind it, which holds."""
    assert crc32c(data[:-4]) == int.from_bytes(data[-4:], "little")
    return data[:-4]


def test_the_list_of_damaged_ranges_is_as_documented(tree: dict[str, bytes]) -> None:
    head, entry = layouts("Damaged ranges")
    content = checked(tree["damaged-ranges"])

    assert head.unpack(content[: head.size]) == (b"TLD1",)
    assert list(entry.iter_unpack(content[head.size :])) == [(7, 10), (13, 16)]


def test_the_identity_is_as_documented(tree: dict[str, bytes]) -> None:
    (layout,) = layouts("Identity")

    assert layout.unpack(tree["identity"])[:3] == (b"TLI1", STREAM_ID, 0)
    checked(tree["identity"])


def test_the_mark_of_a_log_that_starts_over_is_as_documented(tree: dict[str, bytes]) -> None:
    (layout,) = layouts("Starting over")
    data = tree[starting_over.FILE_NAME]

    assert layout.unpack(data)[:2] == (b"TLO1", 500)
    checked(data)


def test_longer_forms_of_identity_and_mark_are_as_documented() -> None:
    bench = Bench()

    write_identity(bench.disk, bench.folder, STREAM_ID, 0, 41)
    starting_over.mark(bench.disk, bench.folder, 500, 6)

    identity = checked(read_file(bench.disk, f"{bench.folder}/identity"))
    assert identity == b"TLI2" + STREAM_ID + struct.pack("<IQ", 0, 41)
    mark = checked(read_file(bench.disk, f"{bench.folder}/{starting_over.FILE_NAME}"))
    assert mark == b"TLO2" + struct.pack("<qI", 500, 6)


def test_the_leader_epochs_are_as_documented(tree: dict[str, bytes]) -> None:
    head, entry = layouts("Leader epochs")
    data = tree["leader-epochs"]

    assert head.unpack_from(data)[:3] == (b"TLP1", STREAM_ID, 0)
    checked(data[: head.size])
    entries = [data[at : at + entry.size] for at in range(head.size, len(data), entry.size)]
    assert [entry.unpack(one)[:3] for one in entries] == [(1, 0, 0), (4, 0, 40)]
    for one in entries:
        checked(one)


def test_the_indexes_are_as_documented(tree: dict[str, bytes]) -> None:
    (both,) = layouts("Indexes")
    base = f"{0:020d}"
    offsets, times, log = (tree[f"{base}.{suffix}"] for suffix in ("index", "timeindex", "log"))
    check = crc32c(bytes(8))

    assert len(offsets) // 8 == len(times) // 16 > 3
    for number in range(len(offsets) // 8):
        place, time = offsets[8 * number :][:8], times[16 * number :][:16]
        relative, position, largest, again, found = both.unpack(place + time)
        check = crc32c(place + time[:12], check)
        assert (relative, check) == (again, found)
        assert log[position : position + 4] == b"TLB1"
        assert int.from_bytes(log[position + 8 : position + 16], "little") == relative
        assert T0 <= largest < T0 + 100


def test_the_snapshots_of_the_guard_are_as_documented(tree: dict[str, bytes]) -> None:
    name = max(name for name in tree if name.endswith(".guard"))
    data = tree[name]
    assert crc32c(data[4:]) == int.from_bytes(data[:4], "little")

    version, end, log_time, last_append, producers, ids, sinks = msgspec.msgpack.decode(data[4:])

    assert (version, end, log_time, last_append) == (1, int(name.split(".")[0]), 0, T0)
    assert producers == [[9, [0, 1, 0, [[0, 2, 0, T0]]]]]
    assert ids == [[b"m", 2, T0]]
    assert sinks == []


@pytest.mark.parametrize(
    ("name", "kind", "numbers"),
    [
        ("recovery-points", 0, ("end", "segment", "bytes")),
        ("high-watermarks", 1, ("end", 0, 0)),
        ("log-start-offsets", 2, (5, 0, 0)),
        ("log-start-offsets.copy", 2, (5, 0, 0)),
        ("clean-stop", 3, ("end", "segment", "bytes")),
        ("dated-ahead", 4, (5, 77, 0)),
    ],
)
def test_the_checkpoints_are_as_documented(
    tree: dict[str, bytes], name: str, kind: int, numbers: tuple[object, ...]
) -> None:
    head, entry = layouts("Checkpoints")
    data = checked(tree[f"checkpoints/{name}"])
    last = max(path for path in tree if path.endswith(".log"))
    facts = {"end": 49, "segment": int(last.split(".")[0]), "bytes": len(tree[last])}

    assert head.unpack_from(data) == (b"TLC1", kind, 1)
    assert entry.unpack(data[head.size :]) == (STREAM_ID, 0, *(facts.get(str(n), n) for n in numbers))


def test_the_time_of_retention_is_as_documented(tree: dict[str, bytes]) -> None:
    data = checked(tree["checkpoints/retention-time"])

    assert data == b"TLT1" + T0.to_bytes(8, "little")


def test_every_kind_of_file_is_in_the_table(tree: dict[str, bytes]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for path in tree:
        name = re.sub(r"\d{20}", "<offset>", path.rpartition("/")[2])
        assert f"`{name}`" in text
