"""``tidelog produce``: writes records from arguments, lines, JSON or Arrow to a stream."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import tidelog
from tidelog.cli.completion import stream_names
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output, print_json
from tidelog.cli.progress import Counter
from tidelog.cli.records.input import chunks, lines
from tidelog.cli.records.record_json import FIELDS, GivenRecord, from_json
from tidelog.cli.records.stalls import stalls_shown
from tidelog.cli.values import printable
from tidelog.errors import InvalidRequest, ResourceExhausted, TidelogError
from tidelog.model import Headers, Receipt
from tidelog.wording import count_of

EXAMPLE = "echo 'one order' | tidelog produce orders --key customer-7 --header source=shop"

FLUSH_SECONDS = 5.0
"""On input that does not end, a failure shows after this time at the latest."""

RECORD_COLUMNS = ("key", "value", "headers", "subject", "timestamp")


class Format(StrEnum):
    """The format of the input."""

    LINES = "lines"
    JSON = "json"
    RAW = "raw"
    ARROW = "arrow"
    PARQUET = "parquet"


def produce(
    stream: str = typer.Argument(help="The stream's name.", autocompletion=stream_names),
    values: list[str] | None = typer.Argument(
        None, help="Values, one record each; without them the records come from the input."
    ),
    file: Path | None = typer.Option(None, "--file", "-f", help="Read this file instead of standard input."),
    format_: Format = typer.Option(
        Format.LINES,
        "--format",
        help="lines: one value a line; json: one object a line, as consume --format json prints them; "
        "raw: the whole input is one value; arrow, parquet: the columns key, value, headers, subject, "
        "timestamp.",
    ),
    key: str | None = typer.Option(
        None, "--key", "-k", help="The key of every record; records with equal keys go to the same partition."
    ),
    key_separator: str | None = typer.Option(
        None,
        "--key-separator",
        help="Each line is a key, this separator and a value; for example --key-separator :",
    ),
    header: list[str] | None = typer.Option(
        None, "--header", "-H", help="NAME=VALUE, a header to add to every record; repeatable."
    ),
    subject: str | None = typer.Option(None, "--subject", help="The subject to store with every record."),
    crlf: bool = typer.Option(
        False, "--crlf", help="With lines: a line ends with CR LF, as in text from Windows."
    ),
    partition: int | None = typer.Option(
        None, "--partition", "-p", min=0, help="Write to this partition only."
    ),
    compression: str = typer.Option(
        "none", "--compression", help="How batches are compressed: none, lz4 or zstd."
    ),
    acks: str = typer.Option(
        "all",
        "--acks",
        help="What an acknowledgement means. all: committed; leader: durable on the leader; none: accepted.",
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Write records to a stream.

    When the command ends with code 0, all records are committed (with --acks none: accepted). The command
    reads the input as it arrives, so `tail -f log | tidelog produce logs` works. While the broker refuses
    records, for example because its disk is full, the command reports this on standard error and tries again
    for a minute.
    """
    given = GivenRecord(
        None, None if key is None else key.encode(), _headers(header), subject, None, partition
    )
    if values and file is not None:
        fail("give values on the command line or --file, not both", Exit.USAGE)
    if values and format_ not in (Format.LINES, Format.JSON):
        fail(f"values on the command line can be lines or json, not {format_}", Exit.USAGE)
    if format_ in (Format.ARROW, Format.PARQUET) and (key is not None or header or subject is not None):
        fail(f"--key, --header and --subject cannot be used with {format_}, which has columns", Exit.USAGE)
    if key_separator is not None and format_ is not Format.LINES:
        fail("--key-separator is for --format lines only", Exit.USAGE)
    if crlf and (format_ is not Format.LINES or values):
        fail("--crlf is for --format lines from the input only", Exit.USAGE)
    if key_separator == "":
        fail("--key-separator is empty; give at least one character", Exit.USAGE)
    work = _Work(stream, given, format_, key_separator.encode() if key_separator else None, crlf)
    receipts = connected(
        server, lambda client: work.run(client, values or [], file, compression=compression, acks=acks)
    )
    _report(stream, work, receipts, output)


def _report(stream: str, work: _Work, receipts: list[Receipt], output: Output) -> None:
    if output is Output.JSON:
        print_json(
            {
                "stream": stream,
                "records": work.records,
                "bytes": work.bytes,
                "seconds": round(work.seconds, 6),
                "receipts": [receipt._asdict() for receipt in receipts],
            }
        )
    elif receipts:
        for receipt in receipts:
            again = " (a duplicate)" if receipt.duplicate else ""
            last = "" if receipt.last_offset == receipt.offset else f"–{receipt.last_offset}"
            sys.stdout.write(f"{stream}/{receipt.partition} offset {receipt.offset}{last}{again}\n")
    else:
        rate = work.records / work.seconds if work.seconds > 0 else 0.0
        sys.stdout.write(
            f"{count_of(work.records, 'record')} to {stream} in {work.seconds:.2f} s ({rate:,.0f} a second)\n"
        )


class _Work:
    """One call of the command."""

    def __init__(
        self, stream: str, given: GivenRecord, format_: Format, separator: bytes | None, crlf: bool
    ) -> None:
        self._stream = stream
        self._given = given
        self._format = format_
        self._separator = separator
        self._crlf = crlf
        self.records = 0
        self.bytes = 0
        self.seconds = 0.0
        self._counter = Counter("records produced")

    def _say(self, text: str) -> None:
        self._counter.note(f"tidelog: {text}")

    async def run(
        self, client: tidelog.Client, values: list[str], file: Path | None, **options: Any
    ) -> list[Receipt]:
        """Writes everything; returns the receipts of values and Arrow batches, but none of lines."""
        started = time.perf_counter()
        receipts: list[Receipt] = []
        producer = client.producer(self._stream, **options)
        async with stalls_shown(producer, self._say), producer:
            if values:
                records = [self._record(value.encode(), number) for number, value in enumerate(values, 1)]
                receipts = list(await asyncio.gather(*(self._send(producer, record) for record in records)))
            elif self._format in (Format.ARROW, Format.PARQUET):
                async for receipt in self._send_arrow(producer, file):
                    receipts.append(receipt)
            else:
                await self._send_input(producer, file)
        self.seconds = time.perf_counter() - started
        return receipts

    async def _send(self, producer: tidelog.Producer, record: GivenRecord) -> Receipt:
        self._count(record)
        return await producer.send(
            record.value, key=record.key, headers=record.headers, subject=record.subject,
            timestamp=record.timestamp, partition=record.partition,
        )  # fmt: skip

    async def _send_input(self, producer: tidelog.Producer, file: Path | None) -> None:
        fd = _open(file)
        flushed_at = time.monotonic()
        self._counter = Counter("records produced", self._input_bytes(fd))
        with self._counter as counter:
            try:
                number = 0
                async for some in self._values(fd):
                    for value in some:
                        number += 1
                        await self._buffer(producer, self._record(value, number))
                    counter.set(self.records, self.bytes)
                    await producer.drain()
                    if time.monotonic() - flushed_at > FLUSH_SECONDS:
                        await producer.flush()
                        flushed_at = time.monotonic()
                await producer.flush()
            except TidelogError as error:
                read = count_of(number, "record was", "records were")
                error.message = f"{error.message} ({read} read)"
                raise
            finally:
                if file is not None:
                    os.close(fd)

    def _values(self, fd: int) -> AsyncIterator[list[bytes]]:
        return _whole(fd) if self._format is Format.RAW else lines(fd, crlf=self._crlf)

    async def _buffer(self, producer: tidelog.Producer, record: GivenRecord) -> None:
        self._count(record)
        while True:
            try:
                producer.send_nowait(
                    record.value, key=record.key, headers=record.headers or None, subject=record.subject,
                    timestamp=record.timestamp, partition=record.partition,
                )  # fmt: skip
                return
            except ResourceExhausted:
                await producer.flush()

    async def _send_arrow(self, producer: tidelog.Producer, file: Path | None) -> AsyncIterator[Receipt]:
        source: Any = sys.stdin.buffer if file is None else str(file)
        if self._format is Format.PARQUET and file is None:
            fail("Parquet cannot be read from standard input; give --file", Exit.USAGE)
        try:
            batches = (
                _parquet_batches(source) if self._format is Format.PARQUET else pa.ipc.open_stream(source)
            )
            for batch in batches:
                _check_columns(batch.schema.names, file)
                columns = [name for name in batch.schema.names if name in RECORD_COLUMNS]
                self.records += batch.num_rows
                self.bytes += batch.nbytes
                if batch.num_rows:
                    for receipt in await producer.send_batch(
                        batch.select(columns), partition=self._given.partition
                    ):
                        yield receipt
        except pa.ArrowException as error:
            fail(f"{file or 'the input'} is not {self._format}: {error}", Exit.USAGE)

    def _record(self, line: bytes, number: int) -> GivenRecord:
        given = self._given
        if self._format is Format.JSON:
            try:
                found = from_json(line.decode())
            except UnicodeDecodeError:
                raise InvalidRequest(f"line {number} is not UTF-8 text") from None
            except InvalidRequest as error:
                raise InvalidRequest(f"line {number}: {error}") from None
            return GivenRecord(
                found.value,
                found.key if given.key is None else given.key,
                found.headers + given.headers,
                found.subject if given.subject is None else given.subject,
                found.timestamp,
                given.partition,
            )
        if self._separator is None:
            return given._replace(value=line)
        key, found_separator, value = line.partition(self._separator)
        if not found_separator:
            raise InvalidRequest(
                f"line {number} has no {printable(self._separator)} between key and value: "
                f"{printable(line[:60])}"
            )
        return given._replace(key=key, value=value)

    def _count(self, record: GivenRecord) -> None:
        self.records += 1
        self.bytes += len(record.value or b"") + 1

    def _input_bytes(self, fd: int) -> int | None:
        size = os.fstat(fd).st_size
        return size or None


def _check_columns(names: list[str], file: Path | None) -> None:
    """Ends the command at a column that no record has. Columns such as offset are passed over."""
    where = file or "the input"
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        fail(
            f"{where} has an unknown column {unknown[0]!r}; a record has {', '.join(RECORD_COLUMNS)}",
            Exit.USAGE,
        )
    if "value" not in names:
        fail(f"{where} has no column 'value'", Exit.USAGE)


async def _whole(fd: int) -> AsyncIterator[list[bytes]]:
    yield [b"".join([chunk async for chunk in chunks(fd)])]


def _parquet_batches(path: str) -> Iterable[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches()


def _open(file: Path | None) -> int:
    if file is None:
        return sys.stdin.fileno()
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        fail(f"there is no file {file}", Exit.NOT_FOUND)


def _headers(given: list[str] | None) -> Headers:
    found = []
    for item in given or []:
        name, equals, value = item.partition("=")
        if not equals or not name:
            fail(f"--header: {item!r} is not NAME=VALUE", Exit.USAGE)
        found.append((name, value.encode()))
    return tuple(found)
