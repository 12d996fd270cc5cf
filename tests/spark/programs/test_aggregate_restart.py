"""The aggregate job is killed with all its processes; run again, it has written each window once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spark.programs.running import kill_as_soon_as, running_job
from support.trio import Trio
from tidelog import blocking
from tidelog_spark.jobs.stopping import Exit

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

JOB = "aggregate.py"
RECORDS = 3_000
LIMIT = 1_000
SECONDS_APART = 20
WINDOW_RECORDS = 180
"""Records of an hour."""

WAIT_SECONDS_MAX = 400.0


def _settings(source: str, target: str, servers: str, folder: Path) -> list[str]:
    return [
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

    settings = _settings(source, target, brokers.address, tmp_path)
    with running_job(JOB, settings, tmp_path) as running:
        kill_as_soon_as(lambda: POINTS[point](tmp_path, written), running, tmp_path, WAIT_SECONDS_MAX)
    with running_job(JOB, settings, tmp_path) as running:
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
    with running_job(JOB, _settings("source", "target", "127.0.0.1:9", tmp_path), tmp_path) as running:
        assert running.wait(WAIT_SECONDS_MAX) == Exit.BAD_MOMENT, (tmp_path / "job.log").read_text()
    lines = (tmp_path / "job.log").read_text().splitlines()
    assert sum('"event": "retry"' in line for line in lines) == 5
    assert lines[-1].startswith("error: ")
