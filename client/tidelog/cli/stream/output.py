"""How `tidelog stream` shows a stream: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tidelog.cli.output import Output, console, facts, print_json, table
from tidelog.cli.values import UNLIMITED, show_bytes, show_duration_ms, show_time_us
from tidelog.model import Retention, StreamConfig, StreamDescription, id_text
from tidelog.model.replica_lag import LOST_STATES
from tidelog.wording import count_of, listed


def show(
    stream: StreamDescription,
    output: Output,
    offsets: dict[int, tuple[int, int]] | None = None,
    states: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Prints a stream; `offsets` and `states` are by partition."""
    if output is Output.JSON:
        print_json(as_json(stream, offsets, states))
        return
    config = stream.config
    screen = console()
    screen.print(
        facts(
            [
                ("name", stream.name),
                ("id", id_text(stream.stream_id)),
                ("version", stream.version),
                ("created", show_time_us(stream.created_us)),
                ("subject", config.subject or "none"),
                ("copies", f"{config.replication_factor} (at least {config.min_insync_effective} in sync)"),
                ("durability", config.durability),
                ("retention", retention_text(config.retention)),
                (
                    "segments",
                    f"{show_bytes(config.segment_bytes)}, {show_duration_ms(config.segment_age_ms)}",
                ),
                ("batch", f"at most {show_bytes(config.batch_bytes_max)}"),
                ("NATS answers", config.nats_ack),
                (
                    "dedupe",
                    f"{show_duration_ms(config.dedupe_window_ms)}, {count_of(config.dedupe_count_max, 'id')}",
                ),
                *((f"label {name}", value) for name, value in stream.labels.items()),
                *([("owner", stream.owner)] if stream.owner else []),
            ]
        )
    )
    screen.print()
    columns = ["partition", "leader", "epoch", "replicas", "in sync"]
    rows: list[list[object]] = [
        [
            p.partition, "none" if p.leader is None else p.leader, p.leader_epoch,
            listed(p.replicas), listed(p.isr),
        ]
        for p in stream.partitions
    ]  # fmt: skip
    if offsets is not None:
        columns += ["state", "start", "end", "records"]
        for row, partition in zip(rows, stream.partitions, strict=True):
            start, end = offsets.get(partition.partition, (None, None))
            count = None if start is None or end is None else end - start
            row += [_state(states.get(partition.partition)), start, end, count]
    screen.print(table(columns, rows, right=("start", "end", "records")))


def _state(state: str | None) -> str | None:
    return f"lost, {state}" if state in LOST_STATES else state


def retention_text(retention: Retention) -> str:
    """The bounds of a retention, for a table."""
    parts = []
    if retention.age_ms is not None:
        parts.append(show_duration_ms(retention.age_ms))
    if retention.bytes is not None:
        parts.append(show_bytes(retention.bytes))
    if retention.messages is not None:
        parts.append(count_of(retention.messages, "record"))
    return ", ".join(parts) or UNLIMITED


def as_json(
    stream: StreamDescription,
    offsets: dict[int, tuple[int, int]] | None = None,
    states: Mapping[int, str] = MappingProxyType({}),
) -> dict[str, Any]:
    config = stream.config
    settings: dict[str, Any] = {name: getattr(config, name) for name in StreamConfig.__dataclass_fields__}
    settings["min_insync_effective"] = config.min_insync_effective
    settings["retention"] = {name: getattr(config.retention, name) for name in Retention.__dataclass_fields__}
    partitions: list[dict[str, Any]] = []
    for p in stream.partitions:
        found: dict[str, Any] = {
            "partition": p.partition, "leader": p.leader, "leader_epoch": p.leader_epoch,
            "partition_epoch": p.partition_epoch, "replicas": list(p.replicas), "isr": list(p.isr),
        }  # fmt: skip
        if offsets is not None and p.partition in offsets:
            found["log_start_offset"], found["high_watermark"] = offsets[p.partition]
        if p.partition in states:
            found["state"] = states[p.partition]
        partitions.append(found)
    return {
        "name": stream.name,
        "stream_id": id_text(stream.stream_id),
        "version": stream.version,
        "created": show_time_us(stream.created_us),
        "labels": dict(stream.labels),
        "owner": stream.owner or None,
        "config": settings,
        "partitions": partitions,
    }
