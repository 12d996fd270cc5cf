"""From the records of the source to results: rows of the sink, and `window_start` for their order.

The columns of a record have the names that they have in a table of `ingest`. Spark analyses each expression
of the configuration alone, so that the sentence of a fault names its key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, TimestampType

from tidelog.errors import InvalidRequest
from tidelog_spark.failures import sentence_of
from tidelog_spark.jobs.aggregating.config import WINDOW_END, WINDOW_START, Aggregation, Window
from tidelog_spark.lake.columns import VALUE, name_in_table

_TIME: Final = "_event_time"
_WINDOW: Final = "_window"

_JSON: Final = {
    "ignoreNullFields": "false",
    # Spark's own format ends at milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}

T = TypeVar("T")


def results(records: DataFrame, job: Aggregation) -> DataFrame:
    """The closed windows; raises `InvalidRequest` for an expression that Spark does not take."""
    rows = table(records)
    if job.where is not None:
        where = job.where
        rows = _analysed("where", where, lambda: rows.where(where))
    rows = _timed(rows, job.window)
    groups = [
        _analysed(f"groupBy.{number}", text, lambda text=text: rows.select(F.expr(text)))  # type: ignore[misc]
        for number, text in enumerate(job.group_by)
    ]
    for number, group in enumerate(groups):
        if len(group.columns) != 1:
            raise InvalidRequest(
                f"groupBy.{number} is {job.group_by[number]!r}, which is {len(group.columns)} columns; name "
                f"each of them"
            )
    names = [group.columns[0] for group in groups]
    _check_names([*names, *job.aggregates])
    grouped = rows.groupBy(_window(job.window).alias(_WINDOW), *(F.expr(text) for text in job.group_by))
    for name, text in job.aggregates.items():
        _analysed(f"aggregates.{name}", text, lambda text=text: grouped.agg(F.expr(text)))  # type: ignore[misc]
    found = grouped.agg(*(F.expr(text).alias(name) for name, text in job.aggregates.items()))
    keys = found.columns[1 : 1 + len(groups)]
    flat = found.select(
        F.col(f"{_WINDOW}.start").alias(WINDOW_START),
        F.col(f"{_WINDOW}.end").alias(WINDOW_END),
        *(F.col(_quoted(name)) for name in found.columns[1:]),
    )
    return flat.select(
        _key(flat, keys).alias("key"),
        F.to_json(F.struct("*"), _JSON).alias("value"),
        # The last moment of the window: an aggregate of these records finds it in the right window. Brokers
        # refuse times in the future, so such a window gets the time of its batch, by the sink.
        F.expr(f"if({WINDOW_END} <= current_timestamp(), {WINDOW_END} - interval 1 microsecond, null)").alias(
            "timestamp"
        ),
        F.col(WINDOW_START),
    )


def table(records: DataFrame) -> DataFrame:
    """The fields of the value as columns of their own, and then the columns of the record."""
    if VALUE not in records.columns or not isinstance(records.schema[VALUE].dataType, StructType):
        return records
    schema = to_arrow_schema(records.schema, timezone="UTC")
    others = [name for name in records.columns if name != VALUE]
    return records.select(f"{VALUE}.*", *(F.col(name).alias(name_in_table(name, schema)) for name in others))


def _timed(rows: DataFrame, window: Window) -> DataFrame:
    timed = _analysed("window.time", window.time, lambda: rows.select("*", F.expr(window.time).alias(_TIME)))
    found = timed.schema[_TIME].dataType
    if not isinstance(found, TimestampType):
        raise InvalidRequest(
            f"window.time is {window.time!r}, which is {found.simpleString()}; it must be a timestamp, such "
            f"as timestamp_millis(placed)"
        )
    return timed.withWatermark(_TIME, _interval(window.watermark))


def _window(window: Window) -> Column:
    return F.window(F.col(_TIME), _interval(window.size), _interval(window.slide or window.size))


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"


def _check_names(names: Sequence[str]) -> None:
    known = [name.casefold() for name in (WINDOW_START, WINDOW_END, *names)]
    for name in names:
        if known.count(name.casefold()) > 1:
            raise InvalidRequest(
                f"a result would have two fields {name!r}; it has {WINDOW_START}, {WINDOW_END}, the columns "
                f"of groupBy and the names of aggregates"
            )


def _key(rows: DataFrame, names: Sequence[str]) -> Column:
    """The group: one column as it is or as text, several columns as JSON, no column as null."""
    if not names:
        return F.lit(None).cast("binary")
    columns = [F.col(_quoted(name)) for name in names]
    kind = rows.schema[names[0]].dataType
    if len(names) > 1 or isinstance(kind, StructType | ArrayType | MapType):
        return F.to_json(F.struct(*columns), _JSON).cast("binary")
    return columns[0] if isinstance(kind, BinaryType) else columns[0].cast("string").cast("binary")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _analysed(key: str, text: str, step: Callable[[], T]) -> T:
    try:
        return step()
    except AnalysisException as error:
        raise InvalidRequest(f"{key} is {text!r}: {sentence_of(error)}") from None
