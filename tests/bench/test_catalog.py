"""The list of cases, and how cases are chosen."""

import re
from itertools import groupby

import pytest
from bench.__main__ import main
from bench.cases.catalog import PEERS, all_cases
from bench.harness.case import Case, matching
from bench.harness.model import Contender, Missing
from bench.harness.stage import Stage

NAMES = [case.name for case in all_cases()]


def test_every_case_of_the_design_for_one_broker_exists() -> None:
    durabilities, sizes = ("fsync", "pagecache"), ("100B", "1KB")
    wanted = {
        *(f"produce.rf1.{d}.{s}.{how}" for d in durabilities for s in sizes for how in ("batch", "record")),
        *(f"consume.rf1.{s}" for s in sizes),
        *(f"serial.rf1.{d}.{door}" for d in durabilities for door in ("grpc", "nats")),
        *(f"nats_ingest.rf1.{d}" for d in durabilities),
        *(f"spark.{work}.{s}" for work in ("read.batch", "read.stream") for s in sizes),
        *(f"spark.{work}.{s}" for work in ("write.batch", "write.stream") for s in sizes),
        *(f"spark.{work}" for work in ("read.batch.columns", "read.batch.subject", "latency")),
        "cpu.rf1",
        "memory.rf1.idle",
        "memory.rf1.load",
    }
    assert wanted <= set(NAMES)


def test_every_case_of_the_design_for_three_brokers_exists() -> None:
    durabilities, sizes = ("fsync", "pagecache"), ("100B", "1KB")
    wanted = {
        *(f"produce.rf3.{d}.{s}.{how}" for d in durabilities for s in sizes for how in ("batch", "record")),
        *(f"consume.rf3.{s}" for s in sizes),
        *(f"serial.rf3.{d}.{door}" for d in durabilities for door in ("grpc", "nats")),
        *(f"nats_ingest.rf3.{d}" for d in durabilities),
        "e2e.rf3.1000rps",
        *(f"failover.{event}" for event in ("kill", "stop", "hang", "follower", "controller")),
        *(f"streams.{count}.{what}" for count in (1000, 5000) for what in ("idle_cpu", "memory", "create")),
        "streams.2000.failover",
        "cpu.rf3",
    }
    assert wanted <= set(NAMES)


def test_cases_with_the_same_servers_are_adjacent_so_no_server_starts_twice() -> None:
    assert [servers for servers, _ in groupby(case.servers for case in all_cases())] == [
        "one",
        "three",
        "own",
    ]


def test_each_case_has_a_name_of_its_own_and_known_peers() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*(\.[0-9A-Za-z_]+)+", name) for name in NAMES)
    assert {peer for case in all_cases() for peer in case.peers} == set(PEERS)


def test_without_a_choice_all_cases_are_chosen() -> None:
    assert [case.name for case in matching(all_cases(), [])] == NAMES


def test_a_case_is_chosen_by_its_name_or_the_first_parts_of_its_name() -> None:
    chosen = matching(all_cases(), ["consume.rf1", "produce.rf1.fsync.1KB.batch"])

    assert [case.name for case in chosen] == [
        "produce.rf1.fsync.1KB.batch",
        "consume.rf1.100B",
        "consume.rf1.1KB",
    ]


@pytest.mark.parametrize("name", ["prod", "produce.rf1.fsyn", "consume.rf1.100B.x"])
def test_an_incomplete_part_of_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        matching(all_cases(), ["consume", name])


def test_the_list_of_cases_is_printed_without_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--cases", "consume.rf1"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["consume.rf1.100B", "consume.rf1.1KB"]


def test_a_case_that_this_machine_cannot_run_is_left_out_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(_stage: Stage) -> Contender:
        raise Missing("there is no Java")

    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("bench.__main__.all_cases", lambda: [Case("spark.read", "rows/s", True, lacking)])

    assert main([]) == 0

    assert "spark.read is left out: there is no Java" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "word"), [(["--cases", "nothing"], "nothing"), (["--peers", "redis"], "redis")]
)
def test_an_unknown_name_is_one_sentence_and_exit_code_2(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1
