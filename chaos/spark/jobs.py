"""The driver of each target, and the rows that the target has at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from chaos.spark.checking import Row
from chaos.spark.flow import MICRO_BATCH_RECORDS, SOURCE
from chaos.spark.machines import Machines
from tidelog import blocking
from tidelog.cli.local.processes import Child, start

TARGET: Final = "target"
TABLE: Final = "chaos.records"
COLUMNS: Final = ("stream", "partition", "offset", "value")
STARTS_BEYOND_KILLS_MAX: Final = 15
"""Starts of a driver that ended because brokers or executors were away for too long."""

OUTPUT_CHARACTERS_MAX: Final = 3_000
"""How much of a driver's output an error has."""

SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.2",
}


class Target(StrEnum):
    SINK = "sink"
    PARQUET = "parquet"
    ICEBERG = "iceberg"


class DriverFailed(Exception):
    """The driver ended, and another start would not help or is one too many."""


class Driver:
    """The process of a job; it is started again when it has ended."""

    def __init__(self, machines: Machines, target: Target, kills: int) -> None:
        self._machines, self._target = machines, target
        self.folder = machines.folder
        self.checkpoint = self.folder / "checkpoint"
        self.events = self.folder / "events"
        self.events.mkdir()
        self._starts_max = kills + STARTS_BEYOND_KILLS_MAX
        self._child: Child | None = None
        self.starts = 0

    def keep_running(self) -> None:
        """Starts the driver if it does not run."""
        if self._child is None or not self._child.running:
            self._check_end()
            self._start(until_end=False)

    def finish(self, seconds_max: float) -> None:
        """Writes what is left."""
        self.kill()
        while self._start(until_end=True).process.wait(seconds_max) != 0:
            self._check_end()

    def kill(self) -> bool:
        """Its processes, in Python and Java, all at once. False: it does not run."""
        if self._child is None or not self._child.running:
            return False
        self._child.kill()
        return True

    def _check_end(self) -> None:
        """Raises if the newest driver ended with an error that a repetition does not mend."""
        if self._child is None:
            return
        code = self._child.process.returncode
        output = self._child.output()
        wrong = "IndeterminateReplay" in output or (self._target is not Target.SINK and code in (1, 2))
        if wrong or self.starts >= self._starts_max:
            raise DriverFailed(
                f"The driver ended with code {code} after {self.starts} starts: "
                f"{output[-OUTPUT_CHARACTERS_MAX:]}"
            )

    def _start(self, *, until_end: bool) -> Child:
        self.starts += 1
        log = self.folder / f"driver-{self.starts}.log"
        self._child = start(
            f"driver {self.starts}", self._command(until_end), log, env=self._machines.environment
        )
        return self._child

    def _command(self, until_end: bool) -> list[str]:
        servers = ",".join(self._machines.servers)
        if self._target is Target.SINK:
            settings = json.dumps(self._settings())
            program = [sys.executable, "-m", "chaos.spark.copying", self._machines.master_url, servers]
            program += [SOURCE, TARGET, str(self.checkpoint), settings, str(MICRO_BATCH_RECORDS)]
            return [*program, "end" if until_end else "follow"]
        job: dict[str, Any] = {
            "servers": servers,
            "source": {"streams": [SOURCE], "options": {"maxOffsetsPerTrigger": str(MICRO_BATCH_RECORDS)}},
            "sink": self._lake(),
            "checkpoint": str(self.checkpoint),
            "sparkConf": self._settings(),
        }
        if not until_end:
            job["trigger"] = {"interval": "50ms"}
        config = self.folder / "job.json"
        config.write_text(json.dumps(job))
        program = [sys.executable, "-m", "tidelog_spark.jobs", "ingest", "--config", str(config)]
        return [*program, "--master", self._machines.master_url]

    def _settings(self) -> dict[str, str]:
        return {
            **SPECULATION,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "2",
            "spark.cores.max": "4",
            # Tasks die by intention, more often than the four times that Spark allows.
            "spark.task.maxFailures": "20",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def _lake(self) -> dict[str, Any]:
        if self._target is Target.PARQUET:
            return {"parquet": {"path": str(self.folder / "lake")}}
        return {"iceberg": {"table": TABLE, "catalog": {"warehouse": str(self.folder / "warehouse")}}}

    def rows(self, log: blocking.Client) -> Iterator[Iterable[Row]]:
        """What the target has, for `checking.compare`."""
        match self._target:
            case Target.SINK:
                return _rows_of_stream(log)
            case Target.PARQUET:
                table = ds.dataset(str(self.folder / "lake"), format="parquet").to_table(
                    columns=list(COLUMNS)
                )
            case Target.ICEBERG:
                # Only here, because PyIceberg takes a second to import.
                from pyiceberg.catalog import load_catalog

                uri = f"sqlite:///{self.folder}/warehouse/catalog.db"
                catalog = load_catalog("tidelog", type="sql", uri=uri)
                table = catalog.load_table(TABLE).scan(selected_fields=COLUMNS).to_arrow()
        return _rows_of_table(table)


def records_of(log: blocking.Client, stream: str) -> dict[tuple[str, int, int], bytes]:
    """The records of the source, by their places."""
    found = {}
    for record in log.reader(stream, follow=False):
        found[stream, record.partition, record.offset] = record.value or b""
    return found


def _rows_of_stream(log: blocking.Client) -> Iterator[Iterable[Row]]:
    partitions: dict[int, list[Row]] = {}
    for record in log.reader(TARGET, follow=False):
        partition, _, offset = (record.key or b"").partition(b":")
        row = ((SOURCE, int(partition), int(offset)), record.value or b"")
        partitions.setdefault(record.partition, []).append(row)
    yield from partitions.values()


def _rows_of_table(table: pa.Table) -> Iterator[Iterable[Row]]:
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    for stream, partition, offset, value in zip(*columns, strict=True):
        yield [((stream, partition, offset), value)]
