"""Dead letters as records of a stream: what a bad record becomes there, each exactly once.

They are written by the sink under a name of their own and the number of the micro-batch, before the target
decides the batch. So a batch that runs again finds its dead letters in the stream. A batch is not decided
unless all the bad records that it counts are there.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from tidelog.errors import InvalidRequest, TidelogError
from tidelog_spark.payload import BAD_RECORD
from tidelog_spark.servers import SERVERS

ORIGIN: Final = ("stream", "partition", "offset")
"""The columns that say where a bad record is. They become headers, with the reason."""

HEADER_PREFIX: Final = "dead-letter-"

_AS_THEY_WERE: Final = ("key", "subject", "timestamp")
"""The columns that a dead letter has from its record."""


class DeadLettersLost(TidelogError):
    """Retention passed bad records of a batch after they were counted. The next attempt counts again."""

    code = "DEAD_LETTERS_LOST"
    retriable = True


class DeadLetterStream:
    """Sends the bad records of micro-batches to a stream."""

    def __init__(self, servers: str, stream: str, query: str, columns: list[str]) -> None:
        """`columns`: of the source's rows; raises `InvalidRequest` if they do not say where a record is."""
        for name in ORIGIN:
            if name not in columns:
                raise InvalidRequest(
                    f"deadLetter.stream needs the column {name} of the records, and source.options.columns "
                    f"leaves it out; add {name} to columns, or give deadLetter.path"
                )
        self._options = {SERVERS: servers, "stream": stream, "sinkId": f"{query}-dead"}
        self._may_run_again = True
        """The first batch may have been sent by an earlier process, with other settings of the job."""

    def __repr__(self) -> str:
        return f"<DeadLetterStream {self._options['stream']} {self._options['sinkId']}>"

    def send(self, frame: DataFrame, batch: int, bad: int) -> None:
        """Sends the `bad` records of the batch; raises if an earlier attempt sent other records.

        Raises `DeadLettersLost` if the streams have fewer of them than when they were counted.
        """
        if bad or self._may_run_again:
            # Spark reads the records a second time, and with `failOnDataLoss: false` retention may have
            # passed some of them since the first time.
            counted = Observation()
            rows = dead_letters(frame).observe(counted, F.count(F.lit(1)).alias("sent"))
            writer = rows.write.format("tidelog").options(**self._options)
            writer.option("sinkBatchId", str(batch)).mode("append").save()
            sent = counted.get["sent"]
            if sent != bad:
                raise DeadLettersLost(
                    f"batch {batch} has {bad} bad records, and {sent} of them came to the stream "
                    f"{self._options['stream']}, because retention removed records meanwhile; the batch is "
                    f"read again. Keep the records for longer, or give deadLetter.path"
                )
        self._may_run_again = False


def dead_letters(frame: DataFrame) -> DataFrame:
    """The bad records of rows of the source, as rows of the sink."""
    found = [F.col(name) for name in _AS_THEY_WERE if name in frame.columns]
    bad = frame.where(F.col(BAD_RECORD).isNotNull())
    return bad.select(*found, F.col(f"{BAD_RECORD}.value").alias("value"), _headers(frame).alias("headers"))


def _headers(frame: DataFrame) -> Column:
    ours = F.array(
        *(_header(name, F.col(name)) for name in ORIGIN), _header("reason", F.col(f"{BAD_RECORD}.reason"))
    )
    return F.concat(F.col("headers"), ours) if "headers" in frame.columns else ours


def _header(name: str, value: Column) -> Column:
    text = value.cast("string").cast("binary")
    return F.struct(F.lit(HEADER_PREFIX + name).alias("key"), text.alias("value"))
