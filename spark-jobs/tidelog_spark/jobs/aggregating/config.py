"""The configuration of an aggregation: what may be in the file, with types. Pure.

The expressions in it are Spark SQL. Only Spark can tell whether they are right, so `query` checks them.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from tidelog_spark.jobs.config import Name, Reading, Section, seconds_of
from tidelog_spark.options import parse_stream

WINDOW_SECONDS_MAX: Final = 366 * 86_400.0
"""The longest window, and the longest wait for late records."""

WINDOWS_OF_A_RECORD_MAX: Final = 1_000
"""Windows that one record may be in. Each has a state of its own."""

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
"""Fields of a result."""

Span = Annotated[float, BeforeValidator(seconds_of), Field(ge=0.001, le=WINDOW_SECONDS_MAX)]
"""Seconds of a window; a millisecond at least."""


class Window(Section):
    """Which windows of time a record is in, and how long a window waits for late records."""

    size: Span
    slide: Span | None = None
    """From the start of a window to the start of the next window; None: the size, so that windows do not
    overlap."""
    time: Name = "timestamp"
    """SQL: the time of the event that a record tells of."""
    watermark: Annotated[float, BeforeValidator(seconds_of), Field(ge=0, le=WINDOW_SECONDS_MAX)]
    """Seconds: a window is closed when a record is so much later than its end."""

    @model_validator(mode="after")
    def _can_slide(self) -> Window:
        if self.slide is None:
            return self
        if self.slide > self.size:
            raise ValueError("slide is longer than size, so some records would be in no window")
        if self.size / self.slide > WINDOWS_OF_A_RECORD_MAX:
            raise ValueError(
                f"a record would be in {self.size / self.slide:.0f} windows, and the limit is "
                f"{WINDOWS_OF_A_RECORD_MAX}; make slide longer"
            )
        return self


class StreamSink(Section):
    """Where the results go."""

    stream: Name
    compression: Literal["none", "lz4", "zstd"] = "none"


class Aggregation(Reading):
    """A job that writes aggregates of streams to a stream."""

    where: Name | None = None
    """SQL: which records count."""
    group_by: list[Name] = Field(default=[])
    """SQL: a column, or an expression with a name (``split(subject, '[.]')[1] as region``)."""
    window: Window
    aggregates: dict[Name, Name] = Field(min_length=1)
    """The name of each aggregate, and its SQL (``sum(amount)``)."""
    sink: StreamSink

    @model_validator(mode="after")
    def _fits_together(self) -> Aggregation:
        if self.sink.stream in (self.source.streams or []):
            raise ValueError("sink.stream must not be a stream that the job reads")
        if self.value is not None and self.value.bad_records == "deadLetter":
            raise ValueError(
                "value.badRecords is deadLetter, which only ingest has; give fail or drop, and let an ingest "
                "job of the same streams keep the bad records"
            )
        parse_stream(self.source_options)
        return self

    @property
    def definition(self) -> dict[str, object]:
        """What decides which results are right; the same for as long as the checkpoint is used."""
        window = self.window
        return {
            "where": self.where,
            "groupBy": self.group_by,
            "window.size": window.size,
            "window.slide": window.slide or window.size,
            "window.time": window.time,
            "aggregates": self.aggregates,
            "sink.stream": self.sink.stream,
        }
