"""What happened in a run: from Spark's event log, the checkpoint, and the headers of record batches."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.records.layout import BatchHeader, SinkTask, split_batches

BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class Work:
    """What Spark did, over all starts of the driver."""

    speculative: int
    """Speculative attempts of tasks that began."""
    failed: int
    """Attempts of tasks that did not succeed."""
    batches: int
    batches_repeated: int
    """Micro-batches that more than one driver began."""


def work(events: Path) -> Work:
    """Reads the event logs of all drivers; the last line of a killed driver may be torn."""
    speculative = failed = 0
    drivers: dict[int, set[str]] = defaultdict(set)
    for log in sorted(path for path in events.rglob("*") if path.is_file()):
        for event in _events(log):
            match event["Event"]:
                case "SparkListenerTaskStart":
                    speculative += bool(event["Task Info"]["Speculative"])
                case "SparkListenerTaskEnd":
                    failed += event["Task End Reason"]["Reason"] != "Success"
                case "SparkListenerJobStart" if BATCH_ID in event["Properties"]:
                    drivers[int(event["Properties"][BATCH_ID])].add(log.name)
    repeated = sum(len(names) > 1 for names in drivers.values())
    return Work(speculative, failed, len(drivers), repeated)


def _events(log: Path) -> Iterator[dict[str, Any]]:
    with log.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)


def headers(data: Path, stream: str) -> dict[int, list[BatchHeader]]:
    """The headers of all record batches in a broker's data directory, by partition."""
    found: dict[int, list[BatchHeader]] = {}
    for folder in sorted(data.glob(f"streams/{stream}~*/*")):
        segments = sorted(folder.glob("*.log"))
        found[int(folder.name)] = [
            header for segment in segments for header, _ in split_batches(segment.read_bytes())
        ]
    return found


def batches_written_by_tasks(headers: dict[int, list[BatchHeader]]) -> list[int]:
    """How many record batches each task of each micro-batch has in the log."""
    counts = Counter(
        (header.sink_batch_id, SinkTask.of(header.producer_id).task)
        for of_partition in headers.values()
        for header in of_partition
        if header.of_sink
    )
    return sorted(counts.values())


def batches_read_by_tasks(headers: dict[int, list[BatchHeader]], checkpoint: Path, stream: str) -> list[int]:
    """How many record batches lie in the range of each task, from the ranges in the checkpoint."""
    ends = {partition: [one.next_offset for one in some] for partition, some in headers.items()}
    counts = []
    before: dict[str, int] = {}
    for _, reached in planned(checkpoint, stream):
        for partition, end in reached.items():
            places = ends[int(partition)]
            first = bisect_left(places, before.get(partition, 0) + 1)
            counts.append(bisect_left(places, end + 1) - first)
        before = reached
    return sorted(counts)


def planned(checkpoint: Path, stream: str) -> list[tuple[int, dict[str, int]]]:
    """The micro-batches in the checkpoint, with the end of each partition. A batch that is being written to
    the checkpoint at this moment is left out."""
    found = []
    for path in sorted(_numbered(checkpoint / "offsets"), key=lambda path: int(path.name)):
        try:
            document = json.loads(path.read_text().splitlines()[-1])
            partitions = document["streams"][stream]["partitions"]
        except (OSError, ValueError, IndexError):
            continue
        found.append((int(path.name), {number: place["offset"] for number, place in partitions.items()}))
    return found


def committed(checkpoint: Path) -> int:
    """How many micro-batches are done."""
    return len(_numbered(checkpoint / "commits"))


def _numbered(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.name.isdigit()]
