"""The configuration of a job: what may be in the file, with types. Pure.

`Reading` has the keys of every job, and `Job` those of `ingest`, which are `spec` of an `Ingestion`.
`loading` reads them from a file and a command line, and makes a sentence of each fault. Everything that can
be known to be wrong without Spark, a broker or a store is refused here.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

from tidelog_spark.lake.folders import Time
from tidelog_spark.lake.stores import split_url
from tidelog_spark.options import parse_stream
from tidelog_spark.servers import SERVERS

INTERVAL_SECONDS_MAX: Final = 86_400.0
"""The longest time between two micro-batches."""

SNAPSHOT_SECONDS_MIN: Final = 3_600.0
"""The shortest life of a snapshot: a query that reads an older snapshot fails when its files are removed."""

SNAPSHOT_SECONDS_MAX: Final = 10_000 * 86_400.0

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_RESERVED: Final = {
    SERVERS: "servers",
    "subscribe": "source.streams",
    "subscribePattern": "source.pattern",
    "startingOffsets": "source.start",
    "startingTimestamp": "source.start",
    "failOnDataLoss": "failOnDataLoss",
    "valueFormat": "value.format",
    "valueSchema": "value.schema",
    "valueMessage": "value.message",
    "valueDescriptorFile": "value.descriptorFile",
    "badRecords": "value.badRecords",
}
"""Options of the source that have a key of their own."""


def _url(text: str) -> str:
    split_url(text)
    return text


def seconds_of(value: Any) -> float:
    """Seconds of ``30s``, ``500ms``, ``7d``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(value))
    if not found:
        raise ValueError(f"{value!r} is not a time; write a number and ms, s, m, h or d, such as 60s")
    return float(found[1]) * _UNITS[found[2]]


Url = Annotated[str, AfterValidator(_url)]
Name = Annotated[str, StringConstraints(min_length=1)]
Age = Annotated[float, BeforeValidator(seconds_of), Field(ge=SNAPSHOT_SECONDS_MIN, le=SNAPSHOT_SECONDS_MAX)]
Interval = Annotated[float, BeforeValidator(seconds_of), Field(gt=0, le=INTERVAL_SECONDS_MAX)]


class Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)


class Source(Section):
    """What the job reads."""

    streams: list[Name] | None = Field(default=None, min_length=1)
    pattern: Name | None = None
    """A regular expression for the names of streams."""
    start: Literal["earliest", "latest"] | Annotated[datetime, Field(strict=False)] = "earliest"
    """Where a new checkpoint begins; an existing checkpoint continues at its position."""
    options: dict[str, str] = {}
    """Further options of ``format("tidelog")``."""

    @model_validator(mode="after")
    def _chosen(self) -> Source:
        if (self.streams is None) == (self.pattern is None):
            raise ValueError("give either streams or pattern")
        if isinstance(self.start, datetime) and self.start.tzinfo is None:
            raise ValueError("start has no time zone; write Z or an offset, such as 2026-11-21T07:00:00Z")
        for name in self.options:
            key = next((key for option, key in _RESERVED.items() if option.lower() == name.lower()), None)
            if key is not None:
                raise ValueError(f"options has {name}, which has a key of its own: {key}")
        return self


class Value(Section):
    """How the values of records become columns. Without this section they stay bytes."""

    format: Name
    value_schema: Name | None = Field(default=None, alias="schema")
    message: Name | None = None
    descriptor_file: Name | None = None
    bad_records: Name | None = None


class PartitionBy(Section):
    time: Annotated[Time, Field(strict=False)] = Time.NONE
    columns: list[Name] = []


class Parquet(Section):
    """A folder of Parquet files."""

    path: Url
    partition_by: PartitionBy = PartitionBy()
    compact_small_files: bool = False

    @model_validator(mode="after")
    def _can_compact(self) -> Parquet:
        if not self.compact_small_files:
            return self
        if split_url(self.path)[0] != "file":
            raise ValueError(
                "compactSmallFiles needs a folder of a file system, because an object store cannot replace "
                "several files in one step; write to an Iceberg table instead, or set it to false"
            )
        if not (self.partition_by.columns or self.partition_by.time is not Time.NONE):
            raise ValueError("compactSmallFiles merges the files of a partition, so it needs partitionBy")
        return self


class Catalog(Section):
    """Where the catalog of the Iceberg table is."""

    type: Literal["sql", "rest"] = "sql"
    uri: Name | None = None
    warehouse: Url | None = None
    properties: dict[str, str] = {}
    """Further properties of PyIceberg's catalog. Secrets belong into the environment."""

    @model_validator(mode="after")
    def _complete(self) -> Catalog:
        if self.type == "rest" and self.uri is None:
            raise ValueError("a REST catalog needs uri, such as http://catalog:8181")
        if self.type == "sql" and self.warehouse is None:
            raise ValueError("an SQL catalog needs warehouse, the folder of its tables")
        if self.uri is None and self.warehouse is not None and split_url(self.warehouse)[0] != "file":
            raise ValueError(
                "an SQL catalog with a warehouse in an object store needs uri, such as "
                "sqlite:////lake/catalog.db on a volume"
            )
        return self


class Iceberg(Section):
    """A table of an Iceberg catalog."""

    table: Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)+$")]
    catalog: Catalog
    partition_by: PartitionBy = PartitionBy()
    compact_small_files: bool = False
    expire_snapshots_older_than: Age | None = None


class Sink(Section):
    parquet: Parquet | None = None
    iceberg: Iceberg | None = None

    @model_validator(mode="after")
    def _chosen(self) -> Sink:
        if (self.parquet is None) == (self.iceberg is None):
            raise ValueError("give either parquet or iceberg")
        return self


class DeadLetter(Section):
    """Where records go whose value cannot be decoded."""

    path: Url | None = None
    stream: Name | None = None

    @model_validator(mode="after")
    def _chosen(self) -> DeadLetter:
        if (self.path is None) == (self.stream is None):
            raise ValueError("give either path or stream")
        return self


class Trigger(Section):
    interval: Interval


class ObjectStoreSection(Section):
    """The object store of all s3:// and s3a:// paths. It has no credentials in it."""

    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/]+/?$")] | None = None
    region: Name | None = None
    credentials_file: Name | None = None
    """An AWS credentials file (``[default]``, ``aws_access_key_id``, …)."""


class Reading(Section):
    """What each job has: the streams that it reads, its position, and the Spark that runs it."""

    servers: Name
    source: Source
    value: Value | None = None
    checkpoint: Url
    trigger: Trigger | None = None
    fail_on_data_loss: bool = True
    object_store: ObjectStoreSection = ObjectStoreSection()
    spark_conf: dict[str, str] = {}

    @property
    def source_options(self) -> dict[str, str]:
        """The options of ``spark.readStream.format("tidelog")``."""
        source, value = self.source, self.value
        found = {SERVERS: self.servers, "failOnDataLoss": str(self.fail_on_data_loss).lower()}
        if source.streams is not None:
            found["subscribe"] = ",".join(source.streams)
        if source.pattern is not None:
            found["subscribePattern"] = source.pattern
        if isinstance(source.start, datetime):
            found["startingTimestamp"] = str(round(source.start.timestamp() * 1000))
        else:
            found["startingOffsets"] = source.start
        if value is not None:
            given = {
                "valueFormat": value.format,
                "valueSchema": value.value_schema,
                "valueMessage": value.message,
                "valueDescriptorFile": value.descriptor_file,
                "badRecords": value.bad_records,
            }
            found |= {name: text for name, text in given.items() if text is not None}
        return found | source.options


class Job(Reading):
    """A job that writes streams to a lake."""

    sink: Sink
    dead_letter: DeadLetter | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Job:
        wanted = self.value is not None and self.value.bad_records == "deadLetter"
        if wanted and self.dead_letter is None:
            raise ValueError("value.badRecords is deadLetter, but deadLetter is missing")
        if self.dead_letter is not None and not wanted:
            raise ValueError("deadLetter needs value.badRecords: deadLetter")
        target = self.sink.parquet.path if self.sink.parquet else None
        if target is not None and _inside(self.checkpoint, target):
            raise ValueError("checkpoint must not be inside sink.parquet.path, where readers find its files")
        dead = self.dead_letter.path if self.dead_letter else None
        if dead and target is not None and (_inside(dead, target) or _inside(target, dead)):
            raise ValueError("deadLetter.path and sink.parquet.path must not contain each other")
        if self.dead_letter is not None and self.dead_letter.stream in (self.source.streams or []):
            raise ValueError("deadLetter.stream must not be a stream that the job reads")
        parse_stream(self.source_options)
        return self

    @property
    def source_options(self) -> dict[str, str]:
        # The job itself tells the bad records apart.
        return super().source_options | ({"badRecords": "column"} if self.dead_letter else {})


def _inside(one: str, other: str) -> bool:
    """Whether the first path is the second, or below it."""
    (kind, path), (other_kind, other_path) = split_url(one), split_url(other)
    return kind == other_kind and (f"{path.rstrip('/')}/").startswith(f"{other_path.rstrip('/')}/")
