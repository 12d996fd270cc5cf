"""Readers of cold files beside a producer: the bytes they read, the CPU they use, and the ratios."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import pytest
from bench.catchup.__main__ import main
from bench.catchup.cold import READING, chunks, evict, read
from bench.catchup.load import reading
from bench.catchup.old_stream import OldStream, readers_of
from bench.catchup.report import (
    BASELINE,
    OURS,
    PLAIN,
    VALUES,
    Phase,
    cpus_to_burn,
    entries,
    medians,
    table,
)
from bench.harness.processes import Failed
from rich.console import Console

QUIET = Phase(round=1, kind=BASELINE, **dict.fromkeys(VALUES, 0.0))


def phase(kind: str, **values: Any) -> Phase:
    return replace(QUIET, kind=kind, **values)


def files(folder: Path, *contents: bytes) -> list[Path]:
    paths = [folder / f"{number:020d}.log" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@pytest.mark.parametrize("skip", [0, 1, 5, 7, 12, 40])
def test_files_are_read_as_one_file_without_the_skipped_bytes(tmp_path: Path, skip: int) -> None:
    paths = files(tmp_path, b"abcde", b"", b"fghijkl")

    assert b"".join(chunks(paths, skip, 3)) == b"abcdefghijkl"[skip:]


def test_evicted_files_keep_what_was_just_written(tmp_path: Path) -> None:
    paths = files(tmp_path, os.urandom(100_000))
    content = paths[0].read_bytes()

    evict(paths)

    assert paths[0].read_bytes() == content


def test_the_plain_program_reads_at_its_rate_and_uses_the_given_cpu_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = files(tmp_path, bytes(8 << 20))
    began, burnt = perf_counter(), process_time()

    done = read(paths, skip_bytes=0, bytes_per_second=16 << 20, cpus=0.4, seconds=60)

    assert done == 8 << 20
    assert perf_counter() - began >= 0.49
    assert process_time() - burnt >= 0.2
    assert capsys.readouterr().out == f"{READING}\n"


def test_the_plain_program_ends_when_its_seconds_are_over(tmp_path: Path) -> None:
    paths = files(tmp_path, bytes(8 << 20))

    assert read(paths, skip_bytes=0, bytes_per_second=10 << 20, cpus=0.0, seconds=0.2) <= 4 << 20


def test_both_kinds_of_readers_read_the_same_part_in_a_round(
    tmp_path: Path,
) -> None:
    old = OldStream(tmp_path, batch_rows=8000, batch_bytes=900_000, batches_per_round=100)

    def option(kind: str, name: str, number: int) -> list[int]:
        commands = readers_of(kind, old, "127.0.0.1:1", number=number, seconds=10, cpus=0.5)
        return [int(command[command.index(name) + 1]) for command in commands]

    assert option(OURS, "--offset", 3) == [300 * 8000] * 2
    assert option(PLAIN, "--skip-bytes", 3) == [300 * 900_000] * 2
    assert readers_of(BASELINE, old, "127.0.0.1:1", number=3, seconds=10, cpus=0.5) == []


def test_our_readers_cost_their_own_cpu_and_what_the_broker_needs_more() -> None:
    phases = [
        phase(BASELINE, broker_cpus=0.1),
        phase(OURS, broker_cpus=0.4, reader_cpus=0.2),
        phase(PLAIN, broker_cpus=0.1, reader_cpus=0.5),
    ]

    assert cpus_to_burn(phases) == pytest.approx(0.5)


def test_the_ratios_compare_medians_over_the_rounds() -> None:
    phases = [
        *(phase(BASELINE, produce_p99_ms=1.0, flush_p99_ms=1.0) for _ in range(3)),
        *(phase(OURS, produce_p99_ms=value, flush_p99_ms=2.0) for value in (2.0, 3.0, 90.0)),
        *(phase(PLAIN, produce_p99_ms=value, flush_p99_ms=4.0) for value in (2.0, 2.5, 1.0)),
    ]

    produce, flush = entries(phases, {"rounds": 3})

    assert (produce.case, produce.unit, produce.ours, produce.theirs) == (
        "catchup.produce_p99",
        "ms",
        3.0,
        2.0,
    )
    assert (produce.settings["ours_to_plain"], flush.settings["ours_to_plain"]) == (1.5, 0.5)
    assert flush.ratio == 2.0  # as everywhere in the harness: over 1 is better
    assert medians(phases, OURS)["produce_p99_ms"] == 3.0


def test_each_phase_has_a_line_and_each_kind_has_a_line_of_medians() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table([phase(kind) for kind in (BASELINE, OURS, PLAIN)]))

    lines = captured.get().splitlines()
    assert [sum(kind in line for line in lines) for kind in (BASELINE, OURS, PLAIN)] == [2, 2, 2]


def test_readers_are_ended_with_their_block() -> None:
    endless = f"import time; print({READING!r}, flush=True); time.sleep(60)"

    with reading([[sys.executable, "-c", endless]] * 2) as pids:
        assert all(os.path.exists(f"/proc/{pid}") for pid in pids)

    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('something else')"])
def test_a_reader_that_does_not_begin_fails_the_phase(code: str) -> None:
    with pytest.raises(Failed, match="did not begin"), reading([[sys.executable, "-c", code]]):
        pass


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--seconds", "0"], ["--seconds", "many"]])
def test_wrong_options_are_refused_before_anything_starts(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
