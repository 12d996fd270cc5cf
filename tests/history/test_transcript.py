"""A history written as lines is the same history when it is read, and other lines are refused."""

from __future__ import annotations

import pytest

from history.test_check import honest
from tidelog.history import Anomaly, Producer, TranscriptInvalid, check, lines_of, parse


def test_a_history_survives_being_written_and_read() -> None:
    history = honest(7)
    history.producers[9] = Producer("repeats", repeats=True, ordered=False)
    history.rewind(1, 0)
    history.starts[1] = 3

    assert parse(lines_of({"orders": history, "empty": honest(8, batches=0)})) == {
        "orders": history,
        "empty": honest(8, batches=0),
    }


def test_what_was_lost_is_lost_in_what_was_read() -> None:
    history = honest(3)
    history.reads = [read for read in history.reads if read.offset != history.reads[5].offset]

    report = check(parse(lines_of({"orders": history}))["orders"])

    assert report.anomalies == check(history).anomalies
    assert report.anomalies[Anomaly.LOST] + report.anomalies[Anomaly.SKIPPED] > 0


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "empty"),
        (["hello"], "line 1"),
        (['["tidelog-history", 99]'], "line 1"),
        (['["tidelog-history", 1]', '["write", 1, 0, 0, 1, "acknowledged", 0]'], "no stream"),
        (['["tidelog-history", 1]', '["stream", "s"]', '["write", 1]'], "line 3"),
        (['["tidelog-history", 1]', '["stream", "s"]', '["write", 1, 0, 0, 1, "perhaps", 0]'], "perhaps"),
        (['["tidelog-history", 1]', '["stream", "s"]', '["guess", 1]'], "guess"),
        (['["tidelog-history", 1]', "7"], "line 2"),
    ],
)
def test_lines_that_are_no_history_are_refused_with_their_number(lines: list[str], reason: str) -> None:
    with pytest.raises(TranscriptInvalid, match=reason):
        parse(lines)
