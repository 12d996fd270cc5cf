"""The amount of work, results that several cases share, and what many streams cost each server."""

from functools import partial
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.clusters.many import Footprint
from bench.harness.stage import Stage
from bench.harness.work import Effort


class CountingServer:
    """A server that counts how often it was started and stopped."""

    def __init__(self) -> None:
        self.starts = self.stops = 0

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize(("percent", "count"), [(100.0, 5000), (1.0, 50), (0.001, 1)])
def test_a_percentage_of_the_streams_is_at_least_one_stream(percent: float, count: int) -> None:
    assert Effort(streams_percent=percent).streams(5000) == count


@pytest.mark.parametrize(("percent", "rows"), [(100.0, 10_000_000), (5.0, 500_000), (1e-6, 1)])
def test_a_percentage_of_the_rows_is_at_least_one_row(percent: float, rows: int) -> None:
    assert Effort(spark_percent=percent).spark_rows(100) == rows


@pytest.mark.parametrize(
    "option", ["--kills=0", "--streams-percent=0", "--streams-percent=101", "--spark-percent=0"]
)
def test_zero_effort_is_wrong_usage(option: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--list", option])
    assert ended.value.code == 2


def test_the_server_that_needs_most_counts_and_all_are_reported() -> None:
    found = Footprint(12.5, (300.0, 310.0, 290.0), (1.0, 2.0, 4.5), 0.1)

    assert found.of("create").value == 12.5
    assert found.of("memory").value == 310.0
    assert found.of("idle_cpu").value == 4.5
    assert found.of("idle_cpu").facts == {"servers": [1.0, 2.0, 4.5], "foreign_cpus": 0.1}


def test_work_that_several_cases_ask_for_is_done_once(tmp_path: Path) -> None:
    asked: list[str] = []

    with Stage(tmp_path) as stage:
        for name in ("a", "b", "a"):
            stage.once(name, partial(asked.append, name))

    assert asked == ["a", "b"]


def test_a_cleared_stage_starts_its_servers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[CountingServer] = []

    def make(*_: object, **__: object) -> CountingServer:
        made.append(CountingServer())
        return made[-1]

    monkeypatch.setattr("bench.harness.stage.NatsServer", make)
    with Stage(tmp_path) as stage:
        assert stage.nats() is stage.nats()
        stage.clear()
        assert [(one.starts, one.stops) for one in made] == [(1, 1)]
        stage.nats()

    assert [(one.starts, one.stops) for one in made] == [(1, 1), (1, 1)]
