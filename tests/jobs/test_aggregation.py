"""What the configuration of an aggregation may say, and the sentence for each fault."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelog.errors import InvalidRequest
from tidelog_spark.jobs.aggregating import definition
from tidelog_spark.jobs.aggregating.config import Aggregation
from tidelog_spark.jobs.loading import BadConfiguration, from_document, load
from tidelog_spark.lake.stores import LocalFolder

JOB: dict[str, Any] = {
    "servers": "localhost:9210",
    "source": {"streams": ["orders"], "options": {"maxOffsetsPerTrigger": "1000"}},
    "value": {"format": "json", "schema": "customer string, amount decimal(9,2)", "badRecords": "drop"},
    "where": "amount > 0",
    "groupBy": ["customer"],
    "window": {"size": "1h", "slide": "15m", "watermark": "1d"},
    "aggregates": {"orders": "count(*)"},
    "sink": {"stream": "totals", "compression": "zstd"},
    "checkpoint": "/checkpoints/totals",
}


def changed(section: str, value: Any) -> dict[str, Any]:
    """The job with another section; keys of a dict replace single keys of it, and `...` removes a key."""
    document = copy.deepcopy(JOB)
    if isinstance(value, dict) and section != "aggregates":
        value = document.get(section, {}) | value
        value = {name: given for name, given in value.items() if given is not ...}
    return {name: given for name, given in (document | {section: value}).items() if given is not ...}


def test_a_complete_file_is_read_with_its_types(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB))
    job = load(Aggregation, file, ["window.time=value_time", "aggregates.total=sum(amount)"])
    assert (job.window.size, job.window.slide, job.window.watermark) == (3600.0, 900.0, 86_400.0)
    assert job.aggregates == {"orders": "count(*)", "total": "sum(amount)"}
    assert job.source_options["badRecords"] == "drop"


FAULTS: list[tuple[str, Any, str]] = [
    ("window", ..., "window is missing"),
    ("window", {"watermark": ...}, "window.watermark is missing"),
    ("window", {"size": "1"}, "'1' is not a time; write a number and ms, s, m, h or d"),
    ("window", {"size": "0s"}, "window.size is '0s'"),
    ("window", {"size": "400d"}, "window.size is '400d'"),
    ("window", {"watermark": "-1s"}, "'-1s' is not a time"),
    ("window", {"slide": "2h"}, "slide is longer than size"),
    ("window", {"slide": "1s"}, "a record would be in 3600 windows, and the limit is 1000"),
    ("aggregates", {}, "aggregates is {}"),
    ("aggregates", ["count(*)"], "aggregates is ['count(*)']"),
    ("aggregates", {"n": ""}, "aggregates.n is ''"),
    ("groupBy", "customer", "groupBy is 'customer'"),
    ("where", True, "where is True"),
    ("sink", {"stream": "orders"}, "sink.stream must not be a stream that the job reads"),
    ("sink", {"compression": "gzip"}, "sink.compression is 'gzip'"),
    ("sink", {"parquet": {"path": "/x"}}, "sink.parquet is not a key of a job"),
    ("value", {"badRecords": "deadLetter"}, "which only ingest has; give fail or drop"),
    ("deadLetter", {"stream": "dead"}, "deadLetter is not a key of a job"),
    ("source", {"options": {"maxOffsetPerTrigger": "5"}}, "option 'maxOffsetPerTrigger' is not known"),
    ("servers", ..., "servers is missing"),
]


@pytest.mark.parametrize(("section", "value", "sentence"), FAULTS)
def test_a_fault_is_named_in_one_sentence(section: str, value: Any, sentence: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        from_document(Aggregation, changed(section, value))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("section", "value", "sentence"),
    [
        ("where", ..., "where is None, but the open windows of the checkpoint were made with 'amount > 0'"),
        ("groupBy", [], r"groupBy is \[\]"),
        ("window", {"slide": ...}, "window.slide is 3600.0"),
        ("aggregates", {"orders": "sum(1)"}, "aggregates is .*sum"),
        ("sink", {"stream": "others"}, "sink.stream is 'others'"),
    ],
)
def test_a_checkpoint_goes_on_only_with_the_aggregates_that_it_began(
    section: str, value: Any, sentence: str, tmp_path: Path
) -> None:
    folder = LocalFolder(str(tmp_path), tmp_path)
    job = from_document(Aggregation, JOB)
    definition.check(folder, job)
    definition.keep(folder, job)
    definition.keep(folder, from_document(Aggregation, changed("window", {"watermark": "2d"})))
    with pytest.raises(InvalidRequest, match=sentence):
        definition.check(folder, from_document(Aggregation, changed(section, value)))


def test_the_example_in_the_documents_is_a_configuration() -> None:
    document = (Path(__file__).parents[2] / "docs/spark.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", document.partition("### Aggregates")[2], re.DOTALL)
    job = from_document(Aggregation, yaml.safe_load(example))
    assert job.aggregates == {"orders": "count(*)", "total": "sum(amount)"}


def test_a_bad_configuration_ends_with_code_2_and_a_good_one_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    command = [sys.executable, "-m", "tidelog_spark.jobs", "aggregate", "--check", "--config", str(file)]
    good = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (good.returncode, json.loads(good.stdout)["event"]) == (0, "checked")
    bad = subprocess.run([*command, "--set", "window=1h"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2
    assert bad.stderr.startswith("error: window is '1h'")
