"""The cases of Spark: batch and streaming reads, pruned reads, latency and writes, beside Kafka's connector.

`parquet` is the floor: Spark with files of the same rows, and no log. `memory` is the limit of a Python data
source: the same rows from the memory of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from bench.cases.copies import LATENCY, SIZES
from bench.harness.case import Case, Entrant
from bench.harness.model import OURS, Contender
from bench.spark import contenders as spark
from bench.spark.contenders import KAFKA, MEMORY, PARQUET, UNPRUNED, Selection
from bench.spark.rows import SUBJECT

ROWS = "rows/s"

Make: TypeAlias = Callable[..., Contender]

PRUNED_SIZE = 1000

COLUMNS = Selection(select=("key", "timestamp"), options={"columns": "key,timestamp"})
SUBJECT_OF_MANY = Selection(where=f"subject = '{SUBJECT}'", options={"subjectFilter": SUBJECT})
SAME_BY_KEY = Selection(where=f"cast(key as string) = '{SUBJECT}'")
"""Records of Kafka have no subject; the key of a row is its subject."""


def spark_cases() -> list[Case]:
    return [
        *(_case(f"spark.read.batch.{label}", spark.read, size=size) for label, size in SIZES.items()),
        _pruned("spark.read.batch.columns", COLUMNS, COLUMNS),
        _pruned("spark.read.batch.subject", SUBJECT_OF_MANY, SAME_BY_KEY),
        *(
            _case(f"spark.read.stream.{label}", spark.read, size=size, streaming=True)
            for label, size in SIZES.items()
        ),
        _latency(),
        *(
            _case(f"spark.write.{work}.{label}", spark.write, size=size, streaming=streaming)
            for work, streaming in (("batch", False), ("stream", True))
            for label, size in SIZES.items()
        ),
    ]


def _case(name: str, make: Make, **how: object) -> Case:
    peers = {"kafka": KAFKA, "parquet": PARQUET}
    if make is spark.read:
        peers["memory"] = MEMORY
    return Case(
        name, ROWS, True,
        partial(make, name=OURS, **how),
        {peer: [partial(make, name=shown, **how)] for peer, shown in peers.items()},
    )  # fmt: skip


def _pruned(name: str, ours: Selection, kafkas: Selection) -> Case:
    """A read of a part of the rows, beside our own read of all of them."""

    def entrant(shown: str, selection: Selection) -> Entrant:
        return partial(spark.read, name=shown, size=PRUNED_SIZE, selection=selection)

    return Case(
        name, ROWS, True,
        entrant(OURS, ours),
        {
            "unpruned": [entrant(UNPRUNED, ours)],
            "kafka": [entrant(KAFKA, kafkas)],
            "parquet": [entrant(PARQUET, ours)],
        },
    )  # fmt: skip


def _latency() -> Case:
    return Case(
        "spark.latency", LATENCY, False,
        partial(spark.latency, name=OURS),
        {"kafka": [partial(spark.latency, name=KAFKA, tuned=tuned) for tuned in (True, False)]},
    )  # fmt: skip
