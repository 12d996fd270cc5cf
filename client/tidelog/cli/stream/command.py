"""``tidelog stream``: create, list, describe, edit and delete streams."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import typer

import tidelog
from tidelog.cli.completion import stream_names
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output, console, example, print_json, table
from tidelog.cli.stream.output import as_json, retention_text, show
from tidelog.cli.values import UNLIMITED, duration_ms, size_bytes
from tidelog.errors import InvalidRequest, StreamNotFound
from tidelog.model import (
    Durability,
    NatsAck,
    ReplicaDescription,
    StreamConfig,
    StreamDescription,
    StreamSettings,
    id_text,
)
from tidelog.model.replica_lag import LOST_STATES, UNREACHABLE
from tidelog.wording import count_of

VERSION_MAX = (1 << 63) - 1
"""Versions are sent as 64-bit integers."""

EXAMPLES = {
    "create": "tidelog stream create orders --subject 'orders.>' --partitions 1 --retention-age 30d",
    "list": "tidelog stream list 'orders.*' --output json",
    "describe": "tidelog stream describe orders",
    "edit": "tidelog stream edit orders --retention-bytes 10GiB",
    "delete": "tidelog stream delete orders --yes",
}

app = typer.Typer(
    help="Create, list, describe, edit and delete streams.",
    epilog=example(EXAMPLES["create"]),
    no_args_is_help=True,
    rich_markup_mode=None,
)

NEW_NAME: Any = typer.Argument(help="The stream's name.")
NAME: Any = typer.Argument(help="The stream's name.", autocompletion=stream_names)
SUBJECT: Any = typer.Option(
    None, "--subject", help="The NATS subject pattern to record, for example 'orders.>'; '' for none."
)
PARTITIONS: Any = typer.Option(
    None, "--partitions", help="Number of partitions; it can grow later, but never shrink. Default: 1."
)
REPLICATION: Any = typer.Option(
    None,
    "--replication-factor",
    help="Copies of each partition. Default: 3, or the number of brokers if there are fewer.",
)
MIN_INSYNC: Any = typer.Option(
    None,
    "--min-insync-replicas",
    help="Copies that must hold a record before it is acknowledged; if there are fewer, all. Default: 2.",
)
DURABILITY: Any = typer.Option(
    None,
    "--durability",
    help="fsync: an acknowledged record is on disk (the default); page-cache: it is in the machine's memory.",
)
RETENTION_AGE: Any = typer.Option(
    None,
    "--retention-age",
    help="Delete records that are older than this (7d, 12h), or 'unlimited'. Default: 7d.",
)
RETENTION_BYTES: Any = typer.Option(
    None,
    "--retention-bytes",
    help="Keep about this much per partition (10GiB), or 'unlimited'; whole segments are deleted.",
)
RETENTION_MESSAGES: Any = typer.Option(
    None,
    "--retention-messages",
    help="Keep at most this many records per partition, or 'unlimited'.",
)
SEGMENT_BYTES: Any = typer.Option(None, "--segment-bytes", help="Size of a segment file. Default: 1GiB.")
SEGMENT_AGE: Any = typer.Option(
    None, "--segment-age", help="Close a segment when it is this old. Default: 7d."
)
BATCH_BYTES: Any = typer.Option(None, "--batch-bytes-max", help="The largest record batch. Default: 1MiB.")
NATS_ACK: Any = typer.Option(
    None,
    "--nats-ack",
    help="Whether NATS messages with a reply subject are acknowledged: always; or never, for request/reply "
    "traffic that other services answer. Default: always.",
)
DEDUPE_WINDOW: Any = typer.Option(
    None,
    "--dedupe-window",
    help="How long message ids are remembered to detect duplicates (2m); 0s: not at all.",
)


def _kept(option: Any) -> Any:
    """The same option for `edit`, where a setting that is not given stays as it is."""
    changed = copy.copy(option)
    changed.help = option.help.partition(" Default:")[0].replace(" (the default)", "")
    return changed


@app.command(epilog=example(EXAMPLES["create"]))
def create(
    name: str = NEW_NAME,
    subject: str | None = SUBJECT,
    partitions: int | None = PARTITIONS,
    replication_factor: int | None = REPLICATION,
    min_insync_replicas: int | None = MIN_INSYNC,
    durability: Durability | None = DURABILITY,
    retention_age: str | None = RETENTION_AGE,
    retention_bytes: str | None = RETENTION_BYTES,
    retention_messages: str | None = RETENTION_MESSAGES,
    segment_bytes: str | None = SEGMENT_BYTES,
    segment_age: str | None = SEGMENT_AGE,
    batch_bytes_max: str | None = BATCH_BYTES,
    nats_ack: NatsAck | None = NATS_ACK,
    dedupe_window: str | None = DEDUPE_WINDOW,
    label: list[str] | None = typer.Option(
        None, "--label", help="NAME=VALUE, a label of the stream; repeatable."
    ),
    validate_only: bool = typer.Option(False, "--validate-only", help="Check everything; change nothing."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Create a stream.

    If the stream exists already with the same settings, the command changes nothing and succeeds, too.
    """
    bounds = _retention_bounds(retention_age, retention_bytes, retention_messages)
    settings = StreamSettings(
        subject=subject, partitions=partitions, replication_factor=replication_factor,
        min_insync_replicas=min_insync_replicas, durability=durability,
        retention=replace(StreamConfig().retention, **bounds) if bounds else None,
        segment_bytes=_size(segment_bytes, "--segment-bytes"),
        segment_age_ms=_age(segment_age, "--segment-age"),
        batch_bytes_max=_size(batch_bytes_max, "--batch-bytes-max"),
        dedupe_window_ms=_age(dedupe_window, "--dedupe-window"),
        nats_ack=nats_ack,
    )  # fmt: skip
    labels = _labels(label)

    async def make(client: tidelog.Client) -> tuple[StreamDescription, bool]:
        existed = await _exists(client, name)
        stream = await client.create_stream(
            name, settings=settings, labels=labels, validate_only=validate_only
        )
        return stream, existed

    stream, existed = connected(server, make)
    _note_minimum(stream, min_insync_replicas)
    if output is Output.JSON:
        print_json({**as_json(stream), "existed": existed})
    elif existed:
        sys.stdout.write(f"stream {name} exists already with these settings; nothing was changed\n")
    elif validate_only:
        sys.stdout.write(f"stream {name} can be created with these settings; nothing was changed\n")
    else:
        sys.stdout.write(f"created stream {name}\n\n")
        show(stream, output)


@app.command("list", epilog=example(EXAMPLES["list"]))
def list_(
    pattern: str = typer.Argument(
        "", help="A regular expression that must match the whole name; without it, all streams."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """List streams."""
    found = connected(server, lambda client: client.list_streams(pattern))
    if output is Output.JSON:
        print_json([as_json(stream) for stream in found])
        return
    rows = [
        (
            stream.name, stream.config.subject, len(stream.partitions), stream.config.replication_factor,
            stream.config.durability, retention_text(stream.config.retention),
        )
        for stream in found
    ]  # fmt: skip
    columns = ("name", "subject", "partitions", "copies", "durability", "retention")
    console().print(table(columns, rows, right=("partitions", "copies")))


@app.command(epilog=example(EXAMPLES["describe"]))
def describe(name: str = NAME, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Show a stream's settings, leaders and offsets."""

    async def ask(
        client: tidelog.Client,
    ) -> tuple[StreamDescription, dict[int, tuple[int, int]], dict[int, str]]:
        stream = await client.describe_stream(name)
        states = _leaders_states(await client.describe_replicas(name))
        # A lost partition has no offsets, and its refusal must not hide the offsets of other partitions.
        away = (*LOST_STATES, UNREACHABLE)
        led = [
            p.partition
            for p in stream.partitions
            if p.leader is not None and states.get(p.partition) not in away
        ]
        return stream, await client.offsets(name, led), states

    stream, offsets, states = connected(server, ask)
    show(stream, output, offsets, states)


@app.command(epilog=example(EXAMPLES["edit"]))
def edit(
    name: str = NAME,
    subject: str | None = _kept(SUBJECT),
    partitions: int | None = _kept(PARTITIONS),
    min_insync_replicas: int | None = _kept(MIN_INSYNC),
    durability: Durability | None = _kept(DURABILITY),
    retention_age: str | None = _kept(RETENTION_AGE),
    retention_bytes: str | None = _kept(RETENTION_BYTES),
    retention_messages: str | None = _kept(RETENTION_MESSAGES),
    segment_bytes: str | None = _kept(SEGMENT_BYTES),
    segment_age: str | None = _kept(SEGMENT_AGE),
    batch_bytes_max: str | None = _kept(BATCH_BYTES),
    nats_ack: NatsAck | None = _kept(NATS_ACK),
    dedupe_window: str | None = _kept(DEDUPE_WINDOW),
    expected_version: int | None = typer.Option(
        None,
        "--expected-version",
        min=0,
        max=VERSION_MAX,
        help="Change nothing if the stream has changed since this version.",
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Change settings of a stream.

    A setting that you do not give keeps its value.
    """
    bounds = _retention_bounds(retention_age, retention_bytes, retention_messages)
    settings = StreamSettings(
        subject=subject, partitions=partitions, min_insync_replicas=min_insync_replicas,
        durability=durability,
        segment_bytes=_size(segment_bytes, "--segment-bytes"),
        segment_age_ms=_age(segment_age, "--segment-age"),
        batch_bytes_max=_size(batch_bytes_max, "--batch-bytes-max"),
        dedupe_window_ms=_age(dedupe_window, "--dedupe-window"),
        nats_ack=nats_ack,
    )  # fmt: skip
    if not bounds and not settings.given():
        fail("nothing to change: give at least one setting; see tidelog stream edit --help", Exit.USAGE)

    async def change(client: tidelog.Client) -> StreamDescription:
        changed, version = settings, expected_version
        if bounds:
            # The bounds are one setting. Those that are not given stay as they were a moment ago.
            present = await client.describe_stream(name)
            changed = replace(settings, retention=replace(present.config.retention, **bounds))
            version = present.version if version is None else version
        return await client.alter_stream(name, settings=changed, expected_version=version)

    stream = connected(server, change)
    _note_minimum(stream, min_insync_replicas)
    show(stream, output)


@app.command(epilog=example(EXAMPLES["delete"]))
def delete(
    name: str = NAME,
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Delete a stream with all its records."""

    async def remove(client: tidelog.Client) -> bytes:
        stream = await client.describe_stream(name)
        if not yes:
            _ask(name)
        return await client.delete_stream(name, stream_id=stream.stream_id)

    stream_id = connected(server, remove)
    if output is Output.JSON:
        print_json({"name": name, "stream_id": id_text(stream_id), "deleted": True})
    else:
        sys.stdout.write(f"deleted stream {name}\n")


async def _exists(client: tidelog.Client, name: str) -> bool:
    try:
        await client.describe_stream(name)
    except (StreamNotFound, InvalidRequest):
        # Of an impossible name the creation itself says what is wrong.
        return False
    return True


def _note_minimum(stream: StreamDescription, given: int | None) -> None:
    """Says that a minimum above the number of copies has no effect yet (R3)."""
    config = stream.config
    if given is not None and given > config.replication_factor:
        copies = count_of(config.replication_factor, "copy", "copies")
        sys.stderr.write(
            f"tidelog: note: {stream.name} keeps {copies} of each partition, so a record is acknowledged "
            f"when {copies} hold{'s' if config.replication_factor == 1 else ''} it, not {given}\n"
        )


def _leaders_states(replicas: Sequence[ReplicaDescription]) -> dict[int, str]:
    """The state of each partition's leading copy; of a copy that can be reached, if none leads."""
    found: dict[int, str] = {}
    for replica in sorted(replicas, key=lambda one: (one.leader, one.state != UNREACHABLE)):
        found[replica.partition] = replica.state
    return found


def _ask(name: str) -> None:
    if not sys.stdin.isatty():
        fail(f"deleting {name} deletes all its records for good; confirm with --yes", Exit.USAGE)
    if not typer.confirm(f"Delete stream {name} with all its records?", err=True):
        fail(f"nothing was changed: stream {name} is kept")


def _retention_bounds(age: str | None, size: str | None, messages: str | None) -> dict[str, int | None]:
    """The bounds that are given, by their field of `Retention`; None: no bound."""
    found: dict[str, int | None] = {}
    if age is not None:
        found["age_ms"] = None if age == UNLIMITED else duration_ms(age, "--retention-age")
    if size is not None:
        found["bytes"] = None if size == UNLIMITED else size_bytes(size, "--retention-bytes")
    if messages is not None:
        if messages != UNLIMITED and not messages.isdecimal():
            fail(f"--retention-messages: {messages!r} is not a number", Exit.USAGE)
        found["messages"] = None if messages == UNLIMITED else int(messages)
    return found


def _size(text: str | None, option: str) -> int | None:
    return None if text is None else size_bytes(text, option)


def _age(text: str | None, option: str) -> int | None:
    return None if text is None else duration_ms(text, option)


def _labels(given: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            fail(f"--label: {item!r} is not NAME=VALUE", Exit.USAGE)
        if name in found:
            fail(f"--label: {name!r} is given twice", Exit.USAGE)
        found[name] = value
    return found
