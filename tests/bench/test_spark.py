"""The rows, requests and costs of the Spark cases, and the settings of Kafka's connector."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.cases.spark import spark_cases
from bench.peers.kafka.connector import TUNED_SINK, TUNED_SOURCE, versions
from bench.spark.cost import Cost
from bench.spark.fill import FILES, main
from bench.spark.memory_source import rows_of, tasks
from bench.spark.request import Format, Request
from bench.spark.rows import SUBJECT, batches, selected


def test_rows_are_as_many_as_asked_for_and_the_same_in_each_call() -> None:
    first, second = (
        pa.Table.from_batches(batches(100, 40_123, subjects=True)) for _ in range(2)
    )  # fmt: skip

    assert first.num_rows == 40_123
    assert first.equals(second)
    assert {len(value) for value in first["value"].to_pylist()} == {100}


@pytest.mark.parametrize("count", [1, 42, 43, 99, 142, 143, 20_001])
def test_a_selective_read_gets_the_rows_of_one_subject(count: int) -> None:
    rows = pa.Table.from_batches(batches(100, count, subjects=True))

    assert rows["subject"].to_pylist().count(SUBJECT) == selected(count)
    assert rows["key"].to_pylist() == [name.encode() for name in rows["subject"].to_pylist()]


def test_rows_without_subjects_have_only_values() -> None:
    assert next(batches(1000, 10, subjects=False)).schema.names == ["value"]


def test_a_request_arrives_as_it_was_made() -> None:
    request = Request(
        "batch", Format("kafka", {"subscribe": "a\nb"}), 7, ("key",), "subject = 'x'", Format("parquet"), 1.5,
        "/tmp", (3, 4), {"client": "kafka"},
    )  # fmt: skip

    assert Request.parse(request.line()) == request
    assert "\n" not in request.line()


def test_a_cost_is_the_difference_of_two_moments_by_million_rows_or_by_batch() -> None:
    spent = Cost(5.0, 3.0, 2.5).since(Cost(1.0, 2.0, 2.0))

    assert spent.per_million_rows(2_000_000) == {
        "jvm_cpu_s_per_million_rows": 2.0,
        "python_cpu_s_per_million_rows": 0.5,
        "broker_cpu_s_per_million_rows": 0.25,
    }
    assert spent.per_batch(100) == {
        "jvm_cpu_ms_per_batch": 40.0,
        "python_cpu_ms_per_batch": 10.0,
        "broker_cpu_ms_per_batch": 5.0,
    }


ORPHAN = """
import subprocess, sys
from bench.spark.cost import Cost, adopt_orphans

adopt_orphans()
jvm = subprocess.Popen(["sleep", "60"])
before = Cost.now(jvm.pid, [jvm.pid])
busy = "import time, os\\nwhile time.process_time() < 0.4: pass\\nprint('done', flush=True)"
parent = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
subprocess.run([sys.executable, "-c", parent, busy], stdout=subprocess.PIPE)
print(Cost.now(jvm.pid, [jvm.pid]).since(before).python)
jvm.kill()
"""


def test_the_time_of_a_process_counts_after_its_parent_has_ended() -> None:
    said = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True)

    assert float(said.stdout) >= 0.3


def test_parquet_files_have_all_rows_and_a_timestamp_beside_keys(tmp_path: Path) -> None:
    folder = tmp_path / "rows"

    main(["parquet", "--target", str(folder), "--rows", "90001", "--size", "100", "--subjects"])

    assert 1 < len(list(folder.iterdir())) <= FILES
    assert pq.read_table(folder).num_rows == 90_001
    assert "timestamp" in pq.read_schema(next(folder.iterdir())).names


def test_the_connector_is_tuned_and_its_versions_are_told() -> None:
    assert TUNED_SOURCE["kafka.fetch.max.wait.ms"] == "5"
    assert TUNED_SINK["kafka.acks"] == "all"
    assert "connector 4.2.0" in versions()
    assert "clients 3.9.2" in versions()


def test_the_limit_has_as_many_rows_in_tasks_as_a_stream_has() -> None:
    found = tasks(10, 3_000_013)

    assert [(one.begin, one.end) for one in found] == [
        (10, 1_000_010), (1_000_010, 1_500_012), (1_500_012, 2_500_012), (2_500_012, 3_000_013),
    ]  # fmt: skip
    rows = pa.Table.from_batches(rows_of(found[1], 100))
    assert rows.num_rows == 500_002
    assert {len(value) for value in rows["value"].slice(0, 10).to_pylist()} == {100}


def test_every_spark_case_is_beside_kafka_and_every_read_of_a_table_beside_parquet() -> None:
    for case in spark_cases():
        assert "kafka" in case.peers
        assert ("parquet" in case.peers) == (case.name != "spark.latency")
        assert ("memory" in case.peers) == case.name.startswith(("spark.read.batch.1", "spark.read.stream.1"))
        assert ("unpruned" in case.peers) == case.name.endswith((".columns", ".subject"))
