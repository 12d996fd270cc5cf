"""Ratios, the table and the JSON, computed from samples."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from bench.harness.alternate import Rounds, order_of
from bench.harness.case import Case
from bench.harness.model import OURS, Contender, Sample
from bench.harness.report import number, table, write_json
from bench.harness.results import Entry, entries_of, ratio_of
from rich.console import Console


def contender(name: str, *, warm: Callable[[], None] | None = None) -> Contender:
    return Contender(name, lambda _seconds: Sample(1.0), {"client": f"of {name}"}, warm)


def case(*, more_is_better: bool = True) -> Case:
    return Case("produce.rf1.fsync.100B.batch", "records/s", more_is_better, lambda _stage: contender(OURS))


def two_rounds(*, more_is_better: bool) -> list[Entry]:
    contenders = [contender(OURS), contender("kafka"), contender("jetstream")]
    samples = {
        OURS: [Sample(300.0, {"p99_ms": 2.0}), Sample(100.0, {"p99_ms": 4.0})],
        "kafka": [Sample(100.0), Sample(100.0)],
        "jetstream": [Sample(400.0), Sample(400.0)],
    }
    return entries_of(case(more_is_better=more_is_better), contenders, samples, {"quiet": True})


def test_there_is_one_entry_for_each_peer_with_medians_and_their_ratio() -> None:
    kafka, jetstream = two_rounds(more_is_better=True)

    assert (kafka.peer, kafka.ours, kafka.theirs, kafka.ratio) == ("kafka", 200.0, 100.0, 2.0)
    assert (jetstream.peer, jetstream.theirs, jetstream.ratio) == ("jetstream", 400.0, 0.5)


def test_a_ratio_over_one_means_ours_is_better_where_less_is_better_too() -> None:
    kafka, jetstream = two_rounds(more_is_better=False)

    assert (kafka.ratio, jetstream.ratio) == (0.5, 2.0)


def test_a_ratio_to_zero_is_left_out() -> None:
    assert ratio_of(5.0, 0.0, more_is_better=True) is None
    assert ratio_of(0.0, 5.0, more_is_better=False) is None


def test_a_case_without_peers_has_one_entry_without_a_ratio() -> None:
    (entry,) = entries_of(case(), [contender(OURS)], {OURS: [Sample(7.0)]}, {})

    assert (entry.ours, entry.peer, entry.theirs, entry.ratio) == (7.0, None, None, None)


def test_settings_hold_the_rounds_and_the_medians_of_other_figures_of_both_sides() -> None:
    kafka, _ = two_rounds(more_is_better=True)

    assert kafka.settings["quiet"] is True
    assert kafka.settings["ours"] == {"client": f"of {OURS}", "p99_ms": 3.0, "rounds": [300.0, 100.0]}
    assert kafka.settings["theirs"] == {"client": "of kafka", "rounds": [100.0, 100.0]}


def test_the_json_is_a_list_of_objects_with_the_documented_fields(tmp_path: Path) -> None:
    write_json(two_rounds(more_is_better=True), tmp_path / "out.json")

    found = json.loads((tmp_path / "out.json").read_text())
    assert [set(entry) for entry in found] == [
        {"case", "unit", "ours", "peer", "theirs", "ratio", "settings"}
    ] * 2
    assert found[0]["case"] == "produce.rf1.fsync.100B.batch"
    assert (found[0]["ours"], found[0]["theirs"], found[0]["ratio"]) == (200.0, 100.0, 2.0)


def test_the_table_writes_a_case_once_and_each_peer_on_a_line() -> None:
    console = Console(width=140)
    with console.capture() as captured:
        console.print(table(two_rounds(more_is_better=True)))

    lines = captured.get().splitlines()
    assert sum("produce.rf1" in line for line in lines) == 1
    assert any("kafka" in line and "2.00" in line for line in lines)
    assert any("jetstream" in line and "0.50" in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.1234, "0.123"),
        (999.0, "999"),
        (1234.0, "1,234"),
        (12_340.0, "12.3 k"),
        (2.5e6, "2.5 M"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text


def test_every_second_round_goes_backwards() -> None:
    contenders = [contender("a"), contender("b"), contender("c")]

    names = ["".join(c.name for c in order_of(contenders, number)) for number in range(3)]

    assert names == ["abc", "cba", "abc"]


def broken() -> None:
    raise OSError("no such server")


def test_a_peer_that_fails_is_left_out_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = Rounds(case(), [contender(OURS), contender("kafka", warm=broken), contender("jetstream")])

    with ExitStack() as closing:
        rounds.prepare(closing)

    assert [c.name for c in rounds.standing] == [OURS, "jetstream"]
    assert "kafka is left out: OSError: no such server" in capsys.readouterr().err


def test_a_failure_of_ours_fails_the_case() -> None:
    rounds = Rounds(case(), [contender(OURS, warm=broken)])

    with ExitStack() as closing, pytest.raises(OSError, match="no such server"):
        rounds.prepare(closing)
