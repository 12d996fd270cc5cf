"""Scenarios: their names, their measurements, and claims that fail, which are anomalies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.__main__ import main
from chaos.cluster import Cluster
from chaos.figures import Figures, Standing, tally
from chaos.harness import Harness
from chaos.load import READER
from chaos.scenarios.catalog import SCENARIOS
from chaos.scenarios.steps import claim_no_errors, take_gaps
from chaos.setup import Setup
from tidelog.errors import TimedOut
from tidelog.history import Outcome, Write


def harness(folder: Path) -> tuple[Harness, list[str]]:
    said: list[str] = []
    return Harness(Setup(), folder, said.append, seed=1), said


def acknowledged(number: int) -> Write:
    return Write(1, 0, number, 1, Outcome.ACKNOWLEDGED, number)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--scenario", "melt"], "growth, partition, cut, nats, rotation, roll"),
        (["--rounds", "2"], "--rounds needs --scenario"),
        (["--scenario", "roll", "--rounds", "0"], "at least 1"),
    ],
)
def test_an_unknown_scenario_or_number_of_rounds_is_wrong_usage(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_the_help_describes_each_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])

    said = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}: {scenario.about}" in said for name, scenario in SCENARIOS.items())


def test_elections_and_isr_changes_between_two_looks_are_counted_by_epochs() -> None:
    before = {("orders", 0): Standing(0, 3, 10, (0, 1, 2)), ("orders", 1): Standing(1, 1, 1, (1, 2))}
    after = {("orders", 0): Standing(0, 5, 15, (0, 1, 2)), ("orders", 1): Standing(1, 1, 2, (1,))}

    done = tally(before, after)

    assert (done.elections, done.elections_max) == (2, 2)
    assert (done.isr_changes, done.isr_changes_max) == (4, 3)


def test_gaps_are_printed_as_median_and_maximum() -> None:
    figures = Figures()
    for seconds in (0.2, 3.0, 0.1):
        figures.gap("kill", seconds)
    figures.counts["elections"] += 1234

    assert figures.lines() == [
        "gap          kill: p50 0.20 s, max 3.00 s, 3 times",
        "count        elections: 1,234",
    ]


def test_a_gap_counts_for_its_stream_and_is_taken_once(tmp_path: Path) -> None:
    one, _ = harness(tmp_path)
    one.recording.wrote("orders", acknowledged(0), at=1.0)
    one.recording.wrote("clicks", acknowledged(0), at=1.0)
    one.recording.wrote("clicks", acknowledged(1), at=1.5)
    one.recording.wrote("orders", acknowledged(1), at=3.0)

    assert take_gaps(one, "kill") == "clicks 0.50 s, orders 2.00 s"
    assert take_gaps(one, "kill") == ""
    assert one.figures.gaps == {"kill, clicks": [0.5], "kill, orders": [2.0]}


def test_an_error_of_a_reader_or_an_idempotent_writer_breaks_the_claim(tmp_path: Path) -> None:
    one, said = harness(tmp_path)
    one.recording.told("plain, in batches", TimedOut("nobody knows"))
    claim_no_errors(one)
    assert one.recording.failures == []

    one.recording.told(READER, TimedOut("too late"))
    claim_no_errors(one)

    assert one.recording.failures == ["No client may get an error; a reader got 1 error: TimedOut: too late"]
    assert "failure: No client may get an error" in said[0]


def test_a_new_broker_has_the_present_members_as_seeds(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, begin=1)

    assert (cluster.brokers, len(cluster.servers), len(cluster.proxies)) == ((0,), 1, 3)
    cluster.brokers = (0, 2)
    cluster._write_settings(2)

    settings = json.loads((tmp_path / "broker-2.yaml").read_text())
    assert settings["seeds"] == f"127.0.0.1:{cluster.proxies[0].port}"
