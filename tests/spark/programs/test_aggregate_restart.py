"""The aggregate job is killed with all its processes; run again, it has written each window once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.trio import Trio
from tidelog import blocking
from tidelog_spark.jobs.stopping import Exit

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

JOB = Path(__file__).parents[3] / "spark-jobs/jobs/aggregate.py"
RECORDS = 3_000
LIMIT = 1_000
SECONDS_APART = 20
WINDOW_RECORDS = 180
"""Records of an hour."""

WAIT_SECONDS_MAX = 400.0


@contextmanager
def job(source: str, target: str, servers: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, which is killed at the end."""
    settings = [
        f"servers={servers}",
        f"source.streams=[{source}]",
        f'source.options.maxOffsetsPerTrigger="{LIMIT}"',
        "value={format: json, schema: 'number bigint, weight double, at timestamp'}",
        "groupBy=['number % 3 as rest']",
        "window={size: 1h, time: at, watermark: 1m}",
        # The sum of doubles depends on their order.
        "aggregates={records: count(*), weight: sum(weight), numbers: collect_list(number)}",
        f"sink.stream={target}",
        f"checkpoint={folder}/checkpoint",
    ]
    arguments = [sys.executable, str(JOB), "--master", "local[2]", "--report", str(folder / "report.json")]
    for setting in settings:
        arguments += ["--set", setting]
    (folder / "tmp").mkdir(exist_ok=True)
    with (folder / "job.log").open("ab") as output:
        running = subprocess.Popen(
            arguments,
            stdout=output,
            stderr=output,
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
            start_new_session=True,
        )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


POINTS: dict[str, Callable[[Path, Callable[[], int]], bool]] = {
    "planned by Spark": lambda folder, _: (folder / "checkpoint/offsets/1").exists(),
    "decided": lambda folder, _: any(folder.glob("checkpoint/tidelog/results/_tidelog/*/plan-1.json")),
    "being sent": lambda _, written: written() > 0,
    "committed by Spark": lambda folder, _: (folder / "checkpoint/commits/1").exists(),
}


@pytest.mark.parametrize("point", POINTS)
def test_each_window_is_there_once_after_a_kill(
    point: str,
    log: blocking.Client,
    stream: Callable[..., str],
    brokers: Trio,
    tmp_path: Path,
) -> None:
    source, target = stream(), stream(2)
    with log.producer(source) as producer:
        for number in range(RECORDS):
            at = 1_700_000_000 + number * SECONDS_APART
            producer.send(json.dumps({"number": number, "weight": number / 7, "at": at}).encode())

    def written() -> int:
        return sum(end - first for first, end in log.offsets(target).values())

    with job(source, target, brokers.address, tmp_path) as running:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not POINTS[point](tmp_path, written):
            assert running.poll() is None, (tmp_path / "job.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "job.log").read_text()
            time.sleep(0.001)
        os.killpg(running.pid, signal.SIGKILL)
    with job(source, target, brokers.address, tmp_path) as running:
        assert running.wait(WAIT_SECONDS_MAX) == Exit.DONE, (tmp_path / "job.log").read_text()
    found = [json.loads(record.value or b"") for record in log.reader(target, follow=False)]
    places = [(row["window_start"], row["rest"]) for row in found]
    assert len(places) == len(set(places))
    counted: list[int] = []
    for row in found:
        numbers = row["numbers"]
        assert row["records"] == len(numbers)
        assert row["weight"] == pytest.approx(sum(numbers) / 7)
        assert {number % 3 for number in numbers} == {row["rest"]}
        counted += numbers
    assert sorted(counted) == list(range(len(counted)))
    assert len(counted) > RECORDS - 2 * WINDOW_RECORDS


def test_a_cluster_that_is_away_ends_the_job_with_code_75(tmp_path: Path) -> None:
    with job("source", "target", "127.0.0.1:9", tmp_path) as running:
        assert running.wait(WAIT_SECONDS_MAX) == Exit.BAD_MOMENT, (tmp_path / "job.log").read_text()
    lines = (tmp_path / "job.log").read_text().splitlines()
    assert sum('"event": "retry"' in line for line in lines) == 5
    assert lines[-1].startswith("error: ")
