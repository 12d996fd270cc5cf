"""The driver is killed in the middle; the same checkpoint goes on without a gap or a repeat."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.samples import send
from support.broker import BrokerProcess
from tidelog import blocking
from tidelog_spark.parquet import ParquetJob, start

JOB = Path(__file__).parents[2] / "spark-jobs/jobs/stream_to_parquet.py"
RECORDS = 6_000
LIMIT = 2_000
WAIT_SECONDS_MAX = 90.0


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("batch", [1])
def test_a_query_killed_in_the_middle_restarts_exactly_from_its_checkpoint(
    batch: int,
    log: blocking.Client,
    stream: Callable[..., str],
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    name = stream(2)
    for partition in range(2):
        send(log, name, RECORDS // 2, partition=partition, batch_records=500)
    checkpoint, target = tmp_path / "checkpoint", tmp_path / "lake"
    _kill_when_planned(batch, name, broker, target, checkpoint, tmp_path)
    # Planned and written to the checkpoint, not committed: this batch is run again as it was.
    planned = (checkpoint / f"offsets/{batch}").read_text().splitlines()[-1]
    assert not (checkpoint / f"commits/{batch}").exists()

    job = ParquetJob(
        broker.address, name, str(target), str(checkpoint), offsets_per_trigger_max=LIMIT, available_now=True
    )
    assert start(spark, job).awaitTermination(120)

    # Through the sink's own log: what counts, whatever files the killed run left behind.
    assert (target / "_spark_metadata").is_dir()
    rows = spark.read.parquet(str(target)).select("partition", "offset", "value").collect()
    found = sorted((row.partition, row.offset) for row in rows)
    assert found == [(partition, offset) for partition in range(2) for offset in range(RECORDS // 2)]
    assert all(row.value == f"value-{row.offset}".encode() for row in rows)
    assert (checkpoint / f"offsets/{batch}").read_text().splitlines()[-1] == planned


def _kill_when_planned(
    batch: int, name: str, broker: BrokerProcess, target: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """Runs the job in processes of its own and kills them all as soon as `batch` is in the checkpoint."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    arguments = [
        sys.executable, str(JOB), "--servers", broker.address, "--streams", name, "--path", str(target),
        "--checkpoint", str(checkpoint), "--max-offsets-per-trigger", str(LIMIT), "--master", "local[2]",
    ]  # fmt: skip
    with (tmp_path / "job.log").open("wb") as output:
        job = subprocess.Popen(
            arguments,
            stdout=output,
            stderr=output,
            env={**os.environ, "TMPDIR": str(temporary)},
            start_new_session=True,
        )
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    try:
        while not (checkpoint / f"offsets/{batch}").exists():
            assert job.poll() is None, (tmp_path / "job.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "job.log").read_text()
            time.sleep(0.002)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
