"""Attempts, what is worth another attempt, and how a run ends."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.errors import InvalidRequest, OffsetOutOfRange, StreamNotFound, TidelogError, Unavailable
from tidelog_spark.jobs import running
from tidelog_spark.jobs.following import Progress, position
from tidelog_spark.jobs.moments import passes
from tidelog_spark.jobs.reporting import Report
from tidelog_spark.jobs.running import exit_code_of, run_attempts
from tidelog_spark.jobs.stopping import Exit, Stop


@dataclass
class Scripted:
    """An attempt that ends as it is told."""

    error: Exception | None = None
    succeeded: int = 0
    failure: Exception | None = None

    def run(self) -> None:
        if self.error is not None:
            raise self.error


def attempts(*scripted: Scripted) -> tuple[Report, list[float]]:
    """Runs the attempts in turn; the report and the waits in between."""
    waits: list[float] = []
    report = Report()
    left = list(scripted)
    run_attempts(lambda: left.pop(0), report, wait=waits.append)
    return report, waits


MOMENT = Unavailable("no broker")


def test_a_bad_moment_is_tried_again_after_a_longer_wait_each_time() -> None:
    report, waits = attempts(Scripted(MOMENT), Scripted(MOMENT), Scripted(MOMENT), Scripted())
    assert report.attempts == 4
    assert [0.5 <= waits[0] <= 1, 1 <= waits[1] <= 2, 2 <= waits[2] <= 4] == [True] * 3


def test_a_finished_batch_begins_the_counting_again() -> None:
    working = [Scripted(MOMENT, succeeded=1) for _ in range(2 * running.ATTEMPTS_MAX)]
    report, waits = attempts(*working, Scripted())
    assert report.attempts == 2 * running.ATTEMPTS_MAX + 1
    assert max(waits) <= 1


def test_attempts_in_a_row_have_a_limit() -> None:
    with pytest.raises(Unavailable):
        attempts(*[Scripted(MOMENT) for _ in range(running.ATTEMPTS_MAX)])


def test_what_a_batch_raised_counts_more_than_sparks_text_of_it() -> None:
    lost = OffsetOutOfRange("records are lost")
    with pytest.raises(OffsetOutOfRange):
        attempts(Scripted(RuntimeError("a page of text"), failure=lost))


@pytest.mark.parametrize(
    "error",
    [
        MOMENT,
        ConnectionRefusedError(111, "Connection refused"),
        CommitFailedException("branch main has changed"),
        OSError("When completing multipart upload: AWS Error NETWORK_CONNECTION during PutObject"),
        RuntimeError("[STREAM_FAILED] …\njava.net.ConnectException: Call From a to b failed"),
        RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back."),
        RuntimeError("Traceback …\ntidelog.errors.Unavailable: no broker answered\n\tat org.apache"),
    ],
)
def test_bad_moments_pass(error: Exception) -> None:
    assert passes(error)


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("no such option"),
        StreamNotFound("no stream"),
        PermissionError(13, "Permission denied"),
        ZeroDivisionError("a defect"),
        RuntimeError("Traceback …\ntidelog.errors.OffsetOutOfRange: records are lost\n\tat org.apache"),
    ],
)
def test_what_only_people_can_mend_does_not_pass(error: Exception) -> None:
    assert not passes(error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("wrong"), Exit.BAD_CONFIGURATION),
        (MOMENT, Exit.BAD_MOMENT),
        (TidelogError("lost"), Exit.FAILED),
    ],
)
def test_the_last_words_are_one_sentence_on_standard_error_and_in_the_file(
    error: TidelogError, code: Exit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(stop: Stop) -> None:
        raise error

    assert exit_code_of(work, tmp_path / "words") == code
    assert (tmp_path / "words").read_text() == error.message
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {error.message}"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_work_with_its_code(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    done: list[str] = []

    def work(stop: Stop) -> None:
        os.kill(os.getpid(), number)
        done.append("a step that a signal does not break")
        stop.wait(60)
        done.append("never")

    assert exit_code_of(work, None) == code
    assert done == ["a step that a signal does not break"]
    assert signal.getsignal(number) is before


def test_a_signal_after_the_last_look_still_counts() -> None:
    assert exit_code_of(lambda stop: os.kill(os.getpid(), signal.SIGTERM), None) == 143


def test_what_fails_after_a_signal_is_a_stop() -> None:
    def work(stop: Stop) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise ConnectionResetError("the JVM got the signal, too")

    assert exit_code_of(work, None) == 143


def test_a_signal_counts_although_a_library_has_a_handler_of_its_own() -> None:
    def work(stop: Stop) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with stop.listening():
            os.kill(os.getpid(), signal.SIGINT)

    assert exit_code_of(work, None) == 130


def test_a_reader_never_finds_half_a_report(tmp_path: Path) -> None:
    report = Report(tmp_path / "report.json")
    report.add({"rows": 3, "deadLetters": 1, "files": 2, "bytes": 100})
    report.finish()
    document = json.loads((tmp_path / "report.json").read_text())
    assert (document["rows"], document["deadLetters"], document["batches"]) == (3, 1, 1)
    assert document["finishedAt"] is not None
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_the_report_says_since_when_there_is_no_executor(tmp_path: Path) -> None:
    report = Report(tmp_path / "report.json")

    def noted(count: int) -> str | None:
        report.note_executors(count)
        if not (tmp_path / "report.json").exists():
            return None
        since = json.loads((tmp_path / "report.json").read_text())["noExecutorSince"]
        assert since is None or isinstance(since, str)
        return since

    assert noted(2) is None
    first = noted(0)
    assert first is not None
    assert noted(0) == first, "it is the time since when"
    assert noted(1) is None


def test_lag_counts_what_is_behind_the_position_also_in_new_partitions() -> None:
    def offsets(**partitions: int) -> str:
        places = {number[1:]: {"first": 0, "offset": offset} for number, offset in partitions.items()}
        return json.dumps({"version": 1, "streams": {"orders": {"id": "5c", "partitions": places}}})

    assert position(offsets(p0=5), offsets(p0=9, p1=3)) == ({"orders": {"0": 5}}, 7)
    assert position(offsets(p0=5), None) == ({"orders": {"0": 5}}, None)
    assert position(None, None) == ({}, None)


def progress(second: int, batch: int, rows: int, end: int, dropped: int = 0) -> SimpleNamespace:
    """What Spark reports after a trigger of a query with a state."""
    at = json.dumps({"streams": {"orders": {"partitions": {"0": {"offset": end}}}}})
    return SimpleNamespace(
        timestamp=f"2026-03-01T12:00:{second:02}.000Z",
        batchId=batch,
        numInputRows=rows,
        processedRowsPerSecond=0.0,
        sources=[SimpleNamespace(endOffset=at, latestOffset=at)],
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=dropped, numRowsTotal=1)],
        eventTime={},
    )


def test_a_batch_after_a_trigger_without_records_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    query = SimpleNamespace(
        recentProgress=[progress(1, 0, 5, 5), progress(2, 1, 0, 5), progress(12, 1, 0, 5)]
    )
    told = Progress(report)
    told.tell(cast(StreamingQuery, query))

    query.recentProgress.append(progress(20, 1, 3, 8, dropped=2))
    told.tell(cast(StreamingQuery, query))
    told.tell(cast(StreamingQuery, query))

    assert report.offsets == {"orders": {"0": 8}}
    assert report.counts["lateGroups"] == 2
    assert capsys.readouterr().out.count("progress") == 3
