"""The verdict of a run: reads everything once more, checks the histories, and compares the replicas."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tidelog
from chaos.figures import Figures
from chaos.load import note_all
from chaos.recording import Pause, Recording
from tidelog.history import Report, check, lines_of

VERIFY_SECONDS_MAX: Final = 600.0

HISTORY: Final = "history.jsonl"
"""The file for `tidelog verify --history` in the folder of a run."""


@dataclass
class Verdict:
    """The result of a run."""

    seconds: float
    faults: Counter[str]
    operations: int
    longest_pause: Pause
    reports: dict[str, Report]
    """By stream."""
    failures: list[str] = field(default_factory=list)
    """A sentence for each event that must never happen."""
    compared: int = 0
    """How many records were compared on all replicas."""
    replica_problems: list[str] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    @property
    def clean(self) -> bool:
        return not (
            self.failures or self.replica_problems or any(not one.ok for one in self.reports.values())
        )

    @property
    def anomalies(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for report in self.reports.values():
            found.update({str(kind): records for kind, records in report.anomalies.items()})
        if self.replica_problems:
            found["divergent, missing or corrupt replicas"] = len(self.replica_problems)
        if self.failures:
            found["failures of clients, brokers or claims"] = len(self.failures)
        return found

    def _sum(self, name: str) -> int:
        return sum(getattr(report, name) for report in self.reports.values())

    def as_json(self) -> dict[str, Any]:
        counts = ("acknowledged", "refused", "unknown", "content", "read")
        return {
            "clean": self.clean,
            "seconds": round(self.seconds, 1),
            "operations": self.operations,
            "longest_pause_seconds": round(self.longest_pause.seconds, 3),
            "faults": dict(sorted(self.faults.items())),
            "records": {name: self._sum(name) for name in counts},
            "records_compared_on_all_replicas": self.compared,
            "figures": self.figures.as_json(),
            "anomalies": dict(sorted(self.anomalies.items())),
            "sentences": [
                *self.failures,
                *self.replica_problems,
                *(f"{name}: {one}" for name, report in self.reports.items() for one in report.examples),
            ],
        }

    def lines(self) -> list[str]:
        """The summary that is printed."""
        said = self.as_json()
        faults = ", ".join(f"{count} {kind}" for kind, count in said["faults"].items()) or "none"
        records = ", ".join(f"{count:,} {name}" for name, count in said["records"].items())
        found = [
            f"time         {self.seconds:.0f} s",
            f"operations   {self.operations:,} writes and reads",
            f"faults       {sum(self.faults.values())}: {faults}",
            f"records      {records}",
            f"replicas     {self.compared:,} records are the same on all replicas"
            if not self.replica_problems
            else f"replicas     {self.compared:,} records compared on all replicas; they differ",
            f"pause        longest time without an acknowledgement in one partition: {self.longest_pause}",
            *self.figures.lines(),
        ]
        found += [f"  {sentence}" for sentence in said["sentences"]]
        anomalies = ", ".join(f"{count} {kind}" for kind, count in said["anomalies"].items())
        return [*found, f"result       {'no anomaly' if self.clean else anomalies}"]


async def read_everything(client: tidelog.Client, recording: Recording, streams: Sequence[str]) -> None:
    """Reads each stream from its start to its end, after the last write."""
    for stream in streams:
        history = recording.history(stream)
        for partition, (start, end) in (await client.offsets(stream)).items():
            reader = client.reader(stream, start=start, partitions=[partition], follow=False)
            try:
                reached = await note_all(reader, recording)
            finally:
                await reader.aclose()
            history.starts[partition] = start
            history.last_readers[partition] = reached.get(partition, start)
            if history.last_readers[partition] < end:
                recording.failed(
                    f"{stream}/{partition}: all records below offset {end} are committed, and the last "
                    f"reader got only those below {history.last_readers[partition]}."
                )


def judge(recording: Recording) -> dict[str, Report]:
    """By stream: what `tidelog.history` finds in its history."""
    return {stream: check(history) for stream, history in sorted(recording.histories.items())}


async def compare_replicas(
    server: str, environment: Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Runs `tidelog verify --cluster`. Returns how many records it compared, and the problems it found.

    `environment`: with the files of TLS; None: that of this process.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidelog.cli", "verify", "--cluster", "--server", server, "--output", "json",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    try:
        async with asyncio.timeout(VERIFY_SECONDS_MAX):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not out:
        return 0, [
            f"The replicas were not compared: tidelog verify --cluster ended with code {process.returncode}: "
            f"{err.decode().strip()}"
        ]
    report = json.loads(out)
    return report["records"], [
        f"{one['stream']}/{one['partition']} on broker {one['broker']}: {one['what']}, offsets "
        f"{one['start']}–{one['end'] - 1}: {one['why']}"
        for one in report["problems"]
    ]


def keep_history(recording: Recording, path: Path) -> None:
    """Writes the file that `tidelog verify --history` reads."""
    with path.open("w", encoding="utf-8") as file:
        for line in lines_of(recording.histories):
            file.write(f"{line}\n")
