"""The judgement of a copy: each kind of anomaly is found, and nothing else."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from chaos.spark import evidence
from chaos.spark.checking import Row, compare
from chaos.spark.victims import Victim, order_of

SOURCE = {("s", partition, offset): b"%d" % offset for partition in range(2) for offset in range(3)}


def rows(partition: int, *offsets: int) -> list[Row]:
    return [(("s", partition, offset), b"%d" % offset) for offset in offsets]


def test_a_target_with_each_record_once_in_order_is_clean() -> None:
    assert compare(SOURCE, [rows(0, 0, 1, 2), rows(1, 0, 1, 2)]).clean
    assert compare(SOURCE, [rows(0, 0) + rows(1, 0, 1) + rows(0, 1, 2) + rows(1, 2)]).clean


def test_lost_duplicate_foreign_and_disordered_rows_are_told_apart() -> None:
    lost = compare(SOURCE, [rows(0, 0, 2), rows(1, 0, 1, 2)])
    duplicate = compare(SOURCE, [rows(0, 0, 1, 1, 2), rows(1, 0, 1, 2)])
    foreign = compare(SOURCE, [rows(0, 0, 1, 2, 3), rows(1, 0, 1, 2)])
    disordered = compare(SOURCE, [rows(0, 1, 0, 2), rows(1, 0, 1, 2)])

    assert lost.as_json() == {"lost": 1, "duplicate": 0, "foreign": 0, "disordered": 0}
    assert duplicate.as_json() == {"lost": 0, "duplicate": 1, "foreign": 0, "disordered": 0}
    assert foreign.as_json() == {"lost": 0, "duplicate": 0, "foreign": 1, "disordered": 0}
    assert disordered.as_json() == {"lost": 0, "duplicate": 0, "foreign": 0, "disordered": 1}
    assert lost.sentences() == ["1 rows are lost, such as [('s', 0, 1)]"]


def test_a_row_with_another_value_is_foreign_and_its_record_lost() -> None:
    found = compare(SOURCE, [[*rows(0, 0, 1), (("s", 0, 2), b"x")], rows(1, 0, 1, 2)])

    assert (found.foreign, found.lost) == ([("s", 0, 2)], [("s", 0, 2)])


def test_a_duplicate_in_another_partition_of_the_target_is_found() -> None:
    assert compare(SOURCE, [rows(0, 0, 1, 2), rows(1, 0, 1, 2), rows(0, 1)]).duplicate == [("s", 0, 1)]


def test_thirty_kills_have_each_kind_of_victim_six_times() -> None:
    order = order_of(30, random.Random(1))

    assert set(Counter(order).values()) == {6}
    assert all(set(order[at : at + 5]) == set(Victim) for at in range(0, 30, 5))
    assert order == order_of(30, random.Random(1))


def test_the_event_log_tells_repeated_batches_and_speculative_attempts(tmp_path: Path) -> None:
    job = {"Event": "SparkListenerJobStart", "Properties": {"streaming.sql.batchId": "3"}}
    attempt = {"Event": "SparkListenerTaskStart", "Task Info": {"Speculative": True}}
    end = {"Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": "ExecutorLostFailure"}}
    (tmp_path / "app-1.inprogress").write_text(f'{json.dumps(job)}\n{json.dumps(attempt)}\n{{"Event": "Sp')
    (tmp_path / "app-2").write_text(f"{json.dumps(job)}\n{json.dumps(end)}\n")

    found = evidence.work(tmp_path)

    assert found == evidence.Work(speculative=1, failed=1, batches=1, batches_repeated=1)
