"""``tidelog consume``: the records of a stream as text, JSON, Arrow or Parquet."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc
import typer

import tidelog
from tidelog.cli.completion import stream_names
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.progress import Counter
from tidelog.cli.records.record_output import (
    ArrowOutput,
    JsonOutput,
    ParquetOutput,
    RecordOutput,
    TextOutput,
)
from tidelog.cli.values import Point, point
from tidelog.errors import PartitionNotFound
from tidelog.wording import count_of

EXAMPLE = "tidelog consume orders --from 15m --follow --format json"


class Format(StrEnum):
    """The format of the output."""

    TEXT = "text"
    JSON = "json"
    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options that say what to read."""

    stream: str
    start: Point
    until: Point | None
    partitions: tuple[int, ...] | None
    follow: bool
    records_max: int | None
    subjects: tuple[str, ...] | None
    keys: tuple[bytes, ...] | None


def consume(
    stream: str = typer.Argument(help="The stream's name.", autocompletion=stream_names),
    follow: bool = typer.Option(
        False, "--follow", "-f", help="Wait for new records at the end. Ctrl-C ends the command, with code 0."
    ),
    from_: str = typer.Option(
        "earliest",
        "--from",
        help="Where to begin: earliest, latest, an offset, a time (2026-01-31T12:00:00Z), "
        "or how long ago (15m).",
    ),
    until: str | None = typer.Option(
        None,
        "--until",
        help="Where to end: the first offset or time that is not read, or latest (the end as it is now).",
    ),
    max_: int | None = typer.Option(None, "--max", "-n", min=1, help="Read at most this many records."),
    partition: list[int] | None = typer.Option(
        None, "--partition", "-p", min=0, help="Read only this partition; repeatable."
    ),
    subject: list[str] | None = typer.Option(
        None,
        "--subject",
        help="Read only records with this subject, which may have the wildcards of NATS; repeatable.",
    ),
    key: list[str] | None = typer.Option(None, "--key", help="Read only records with this key; repeatable."),
    format_: Format = typer.Option(
        Format.TEXT,
        "--format",
        help="text: one value a line; json: one object a line; arrow: an IPC stream; parquet: a file.",
    ),
    details: bool = typer.Option(
        False,
        "--details",
        help="With text: print partition, offset, time, subject and key before each value.",
    ),
    output_file: Path | None = typer.Option(
        None, "--output-file", help="Write to this file instead of to standard output."
    ),
    server: str = SERVER,
) -> None:
    """Read records of a stream.

    Without --follow the command reads up to the present end of the stream.
    """
    wanted = _Wanted(
        stream,
        point(from_, "--from"),
        None if until is None else point(until, "--until"),
        tuple(partition) if partition else None,
        follow,
        max_,
        tuple(subject) if subject else None,
        tuple(one.encode() for one in key) if key else None,
    )
    _check_range(wanted.start, wanted.until)
    if details and format_ is not Format.TEXT:
        fail("--details is for --format text; other formats contain the details anyway", Exit.USAGE)
    if format_ is Format.PARQUET and output_file is None:
        fail("Parquet cannot be written to standard output; give --output-file", Exit.USAGE)
    if format_ is Format.ARROW and output_file is None and sys.stdout.isatty():
        fail("Arrow is binary; give --output-file, or pipe it to another program", Exit.USAGE)
    work = _Work(wanted, format_, details, output_file)
    try:
        connected(server, work.run)
    except KeyboardInterrupt:
        if not follow:
            raise
    if output_file is not None:
        sys.stdout.write(f"{count_of(work.records, 'record')} in {output_file}\n")


class _Work:
    """One call of the command."""

    def __init__(self, wanted: _Wanted, format_: Format, details: bool, file: Path | None) -> None:
        self._wanted = wanted
        self._format = format_
        self._details = details
        self._file = file
        self.records = 0
        self._bytes = 0

    async def run(self, client: tidelog.Client) -> None:
        wanted = self._wanted
        partitions = await _partitions(client, wanted)
        start = wanted.start.name or wanted.start.offset
        reader = client.reader(
            wanted.stream,
            start=wanted.start.time if wanted.start.time is not None else start,  # type: ignore[arg-type]
            end=self._end(),
            partitions=partitions,
            follow=wanted.follow,
            subject_filter=wanted.subjects,
            keys=wanted.keys,
        )
        counting = self._file is not None or not sys.stdout.isatty()
        stop_us = _microseconds(wanted.until)
        ended: set[int] = set()
        async with reader:
            first = await reader.arrived()
            with self._output() as output, Counter("records read", enabled=counting) as counter:
                batches = first
                while batches:
                    for batch in batches:
                        if not batch.columns.num_rows:
                            # It only says how far the broker has looked.
                            continue
                        count = _rows_before(batch, stop_us)
                        if count < batch.columns.num_rows:
                            ended.add(batch.partition)
                        elif batch.partition in ended:
                            continue
                        if self._write(output, batch, count):
                            return
                    counter.set(self.records, self._bytes)
                    output.flush()
                    if len(ended) == len(partitions):
                        return
                    batches = await reader.arrived()

    def _write(self, output: RecordOutput, batch: tidelog.FetchedBatch, count: int) -> bool:
        """Writes records of a batch; True: they were the last that `--max` allows."""
        if self._wanted.records_max is not None:
            count = min(count, self._wanted.records_max - self.records)
        if count:
            self._bytes += output.write(batch, count)
            self.records += count
        return self.records == self._wanted.records_max

    def _end(self) -> int | Literal["latest"] | None:
        until = self._wanted.until
        if until is None or until.time is not None:
            return None
        return until.offset if until.name is None else "latest"

    @contextlib.contextmanager
    def _output(self) -> Iterator[RecordOutput]:
        with contextlib.ExitStack() as stack:
            sink: BinaryIO = sys.stdout.buffer
            if self._file is not None:
                sink = stack.enter_context(self._file.open("wb"))
            match self._format:
                case Format.TEXT:
                    output: RecordOutput = TextOutput(sink, details=self._details)
                case Format.JSON:
                    output = JsonOutput(sink)
                case Format.ARROW:
                    output = ArrowOutput(sink)
                case Format.PARQUET:
                    output = ParquetOutput(sink)
            yield stack.enter_context(output)


async def _partitions(client: tidelog.Client, wanted: _Wanted) -> Sequence[int]:
    """The partitions to read; they are checked before any output is written."""
    count = len((await client.describe_stream(wanted.stream)).partitions)
    numbers = wanted.partitions or tuple(range(count))
    for number in numbers:
        if number >= count:
            raise PartitionNotFound.numbered(number, stream=wanted.stream, count=count)
    until_offset = wanted.until is not None and wanted.until.offset is not None
    if len(numbers) > 1 and (wanted.start.offset is not None or until_offset):
        fail(
            f"an offset belongs to one partition, but {wanted.stream} has {count_of(count, 'partition')}; "
            "add --partition, or give a time",
            Exit.USAGE,
        )
    return numbers


def _check_range(start: Point, until: Point | None) -> None:
    """Ends the command if `--until` is before `--from`, so that nothing could ever be read."""
    if until is None:
        return
    ends_before = (
        until.name == "earliest"
        or (until.offset is not None and start.offset is not None and until.offset < start.offset)
        or (until.time is not None and start.time is not None and until.time < start.time)
    )
    if ends_before:
        fail("--until is before --from, so there is nothing to read", Exit.USAGE)


def _microseconds(until: Point | None) -> int | None:
    if until is None or until.time is None:
        return None
    return round(until.time.timestamp() * 1_000_000)


def _rows_before(batch: tidelog.FetchedBatch, stop_us: int | None) -> int:
    """The number of rows before the first row with this timestamp or a later one."""
    rows = int(batch.columns.num_rows)
    if stop_us is None:
        return rows
    late = pc.greater_equal(batch.columns.column("timestamp").view(pa.int64()), stop_us)
    at = pc.index(late, True).as_py()
    return rows if at < 0 else int(at)
