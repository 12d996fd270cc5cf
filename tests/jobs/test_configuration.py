"""What a job's configuration may say, and the sentence for each fault."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark.behaviour.streams import DESCRIPTOR_FILE
from tidelog_spark.jobs.config import Job
from tidelog_spark.jobs.loading import BadConfiguration, from_document, load
from tidelog_spark.lake.folders import Time

JOB: dict[str, Any] = {
    "servers": "localhost:9210",
    "source": {"streams": ["orders", "refunds"], "options": {"maxOffsetsPerTrigger": "1000"}},
    "sink": {
        "parquet": {"path": "/lake/orders", "partitionBy": {"time": "hour", "columns": ["subject"]}},
    },
    "checkpoint": "/lake/_checkpoints/orders",
}


def changed(key: str, value: Any) -> dict[str, Any]:
    """The job with another value at a key, or without the key (`...`)."""
    document = copy.deepcopy(JOB)
    *parents, last = key.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def test_a_complete_file_is_read_with_its_types(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    more = {"trigger": {"interval": "90s"}, "failOnDataLoss": False, "objectStore": {"region": "eu-1"}}
    file.write_text(yaml.safe_dump(JOB | more))
    job = load(Job, file, ["sink.parquet.compactSmallFiles=true", "source.start=latest"])
    assert job.sink.parquet is not None
    assert job.sink.parquet.compact_small_files
    assert job.sink.parquet.partition_by.time is Time.HOUR
    assert job.trigger is not None
    assert job.trigger.interval == 90.0
    assert job.source_options == {
        "tidelog.bootstrap.servers": "localhost:9210",
        "subscribe": "orders,refunds",
        "startingOffsets": "latest",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "1000",
    }


def test_a_job_needs_no_file() -> None:
    job = load(
        Job,
        None,
        [
            "servers=localhost:9210",
            "source.streams=[orders]",
            "sink.iceberg.table=shop.orders",
            "sink.iceberg.catalog.warehouse=/lake/warehouse",
            "sink.iceberg.expireSnapshotsOlderThan=7d",
            "checkpoint=/lake/_checkpoints/orders",
        ],
    )
    assert job.sink.iceberg is not None
    assert job.sink.iceberg.catalog.type == "sql"
    assert job.sink.iceberg.expire_snapshots_older_than == 7 * 86_400
    assert not job.sink.iceberg.compact_small_files


TABLE = {"table": "a.b", "catalog": {"warehouse": "/w"}}

FAULTS: list[tuple[str, Any, str]] = [
    ("servers", ..., "servers is missing"),
    ("servers", "", "servers is ''"),
    ("sevrers", "x", "sevrers is not a key of a job"),
    ("source.streams", ..., "source: give either streams or pattern"),
    ("source.pattern", "o.*", "source: give either streams or pattern"),
    ("source.start", "tomorrow", "source.start is 'tomorrow'"),
    ("source.start", "2026-11-21T07:00:00", "start has no time zone"),
    ("source.options", {"maxOffsetPerTrigger": "5"}, "option 'maxOffsetPerTrigger' is not known"),
    ("source.options", {"maxOffsetsPerTrigger": "-5"}, "maxOffsetsPerTrigger"),
    ("source.options", {"maxOffsetsPerTrigger": 5}, "source.options.maxOffsetsPerTrigger is 5"),
    ("source.options", {"subscribe": "x"}, "a key of its own: source.streams"),
    ("sink", {}, "sink: give either parquet or iceberg"),
    ("sink.parquet.path", "hdfs://name/lake", "hdfs://name/lake"),
    ("sink.parquet.partitionBy.time", "week", "sink.parquet.partitionBy.time is 'week'"),
    ("sink.iceberg", {"table": "a.b", "catalog": {"warehouse": "/w"}}, "give either parquet or iceberg"),
    ("sink", {"iceberg": {"table": "one", "catalog": {"warehouse": "/w"}}}, "sink.iceberg.table is 'one'"),
    ("sink", {"iceberg": {"table": "a.b", "catalog": {"type": "rest"}}}, "a REST catalog needs uri"),
    ("sink", {"iceberg": {"table": "a.b", "catalog": {}}}, "an SQL catalog needs warehouse"),
    ("sink", {"iceberg": {"table": "a.b", "catalog": {"warehouse": "s3://b/w"}}}, "needs uri, such as"),
    ("sink", {"iceberg": {**TABLE, "expireSnapshotsOlderThan": "59m"}}, "expireSnapshotsOlderThan is '59m'"),
    ("sink", {"iceberg": {**TABLE, "expireSnapshotsOlderThan": "7"}}, "'7' is not a time"),
    ("sink", {"iceberg": {**TABLE, "compactSmallFiles": "yes"}}, "compactSmallFiles is 'yes'"),
    ("sink.parquet", {"path": "s3://b/x", "compactSmallFiles": True}, "an object store cannot replace"),
    ("sink.parquet", {"path": "/x", "compactSmallFiles": True}, "so it needs partitionBy"),
    ("deadLetter", {"stream": "dead", "path": "/dead"}, "deadLetter: give either path or stream"),
    ("deadLetter", {}, "deadLetter: give either path or stream"),
    ("deadLetter", {"stream": "orders"}, "deadLetter needs value.badRecords: deadLetter"),
    ("deadLetter", {"path": "/dead"}, "deadLetter needs value.badRecords: deadLetter"),
    ("value", {"format": "json", "badRecords": "deadLetter"}, "deadLetter is missing"),
    ("checkpoint", "/lake/orders/_checkpoint", "checkpoint must not be inside sink.parquet.path"),
    ("trigger", {"interval": "60"}, "'60' is not a time"),
    ("trigger", {"interval": "0s"}, "trigger.interval"),
    ("trigger", {"interval": "48h"}, "trigger.interval"),
    ("failOnDataLoss", "yes", "failOnDataLoss is 'yes'"),
    ("objectStore", {"endpoint": "s3:9000"}, "objectStore.endpoint is 's3:9000'"),
    ("sparkConf", {"a": 1}, "sparkConf.a is 1"),
]  # fmt: skip


def test_each_key_of_a_value_is_an_option_of_the_source() -> None:
    path = str(DESCRIPTOR_FILE)
    value = {"format": "protobuf", "message": "R", "descriptorFile": path, "badRecords": "deadLetter"}
    found = from_document(Job, JOB | {"value": value, "deadLetter": {"stream": "dead"}}).source_options
    assert {name: text for name, text in found.items() if name.startswith(("value", "bad"))} == {
        "valueFormat": "protobuf",
        "valueMessage": "R",
        "valueDescriptorFile": path,
        "badRecords": "column",
    }


@pytest.mark.parametrize(("key", "value", "sentence"), FAULTS)
def test_a_fault_is_named_in_one_sentence(key: str, value: Any, sentence: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        from_document(Job, changed(key, value))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_dead_letters_do_not_go_to_a_stream_that_the_job_reads() -> None:
    value = {"format": "json", "schema": "id bigint", "badRecords": "deadLetter"}
    job = from_document(Job, JOB | {"value": value, "deadLetter": {"stream": "orders-dead"}})
    assert job.source_options["badRecords"] == "column"
    with pytest.raises(BadConfiguration, match=r"deadLetter\.stream must not be a stream that the job reads"):
        from_document(Job, JOB | {"value": value, "deadLetter": {"stream": "refunds"}})


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(BadConfiguration, match=r"servers is missing\. checkpoint is missing"):
        from_document(Job, {"source": JOB["source"], "sink": JOB["sink"]})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("a: [", "is not YAML"), ("- 1", "is not a configuration"), (None, "cannot be read")],
)
def test_a_file_that_is_no_configuration_is_refused(
    content: str | None, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadConfiguration, match=sentence):
        load(Job, file, [])


@pytest.mark.parametrize("setting", ["servers", "=x", "servers=[", "servers.port=1"])
def test_a_setting_that_is_no_key_and_value_is_refused(setting: str, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    with pytest.raises(BadConfiguration):
        load(Job, file, [setting])


def test_a_bad_configuration_ends_with_code_2_and_its_sentence(tmp_path: Path) -> None:
    words = tmp_path / "words"
    command = [sys.executable, "-m", "tidelog_spark.jobs", "ingest", "--termination-log", str(words)]
    ended = subprocess.run([*command, "--set", "servers=x:1"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == f"error: {words.read_text()}"
    assert "source is missing" in words.read_text()
    assert ended.stdout == ""


def test_check_ends_without_spark(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    command = [sys.executable, "-m", "tidelog_spark.jobs", "ingest", "--check", "--config", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["event"] == "checked"
