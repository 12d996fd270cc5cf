"""What the benchmark asks a Spark session for: a line of JSON. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

MASTER = "local[2]"


@dataclass(frozen=True, slots=True)
class Format:
    """A Spark format with its options: a source or a sink."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    """For sources that need one; empty: the source knows its columns."""


@dataclass(frozen=True, slots=True)
class Request:
    """One piece of work. The session answers with a line of JSON."""

    work: str
    """A name in `works.WORKS`."""
    source: Format
    rows: int = 0
    """Rows that the source has, or that the work reads where it selects rows."""
    select: tuple[str, ...] = ()
    """Columns; empty: all."""
    where: str = ""
    """A condition on rows; empty: all rows."""
    sink: Format = Format("noop")
    seconds: float = 0.0
    """How long to repeat the work, at least once."""
    folder: str = ""
    """For checkpoints."""
    brokers: tuple[int, ...] = ()
    """Process ids of the brokers, whose processor time counts."""
    send: Mapping[str, str] = field(default_factory=dict)
    """Latency only: `client` (tidelog, kafka), `address` and `stream` of the records to send."""

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> Request:
        found = json.loads(line)
        found["source"], found["sink"] = Format(**found["source"]), Format(**found["sink"])
        found["select"], found["brokers"] = tuple(found["select"]), tuple(found["brokers"])
        return cls(**found)
