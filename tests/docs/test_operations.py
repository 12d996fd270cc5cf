"""The metrics that the documents name are metrics of a broker or of the operator."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import generate_latest

from tidelog_broker.metrics import Metrics
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.reporting.metrics import Metrics as OperatorMetrics

ROOT = Path(__file__).parents[2]
SAMPLES = "".join(
    (ROOT / "broker/tidelog_broker" / module).read_text(encoding="utf-8")
    for module in ("hosting/samples.py", "api/usage.py")
)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def metrics_of_a_broker() -> set[str]:
    """Counters and histograms as a scrape shows them, and the gauges of `hosting.samples` and `api.usage`."""
    counted = generate_latest(Metrics(lambda: ()).registry).decode()
    return {
        *re.findall(r"^# TYPE (\w+) ", counted, re.MULTILINE),
        *re.findall(r'yield (?:\(\s*)?"(tidelog_\w+)"', SAMPLES),
    }


def metrics_of_the_operator() -> set[str]:
    metrics = OperatorMetrics()
    metrics.observe(Objects(lambda cluster: None), lambda: True, lambda: 0)
    return set(re.findall(r"^# TYPE (\w+) ", generate_latest(metrics.registry).decode(), re.MULTILINE))


def test_every_metric_that_the_documents_name_exists() -> None:
    known = metrics_of_a_broker() | metrics_of_the_operator()

    named = {
        (document.name, metric)
        for document in DOCUMENTS
        for metric in re.findall(r"`(tidelog_[a-z_]+)`", document.read_text(encoding="utf-8"))
        if metric not in ("tidelog_broker", "tidelog_spark", "tidelog_proto")
    }

    assert len(named) > 10
    assert {(document, metric) for document, metric in named if metric not in known} == set()
