"""Which Ingestions the API server rejects, with which message, and which it accepts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kube.control_plane import ControlPlane
from support.kube.specs import Spec, changed, ingestion

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow

PARQUET = {"path": "/lake/x"}
PROTOBUF = {"format": "protobuf", "message": "shop.Order", "descriptorFile": "/lake/shop.desc"}
REST = {"type": "rest", "uri": "http://catalog:8181"}


def warehouse(path: str, **catalog: str) -> Spec:
    return {"iceberg": {"table": "a.b", "catalog": {"type": "sql", **catalog, "warehouse": path}}}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"schedule": None}, "Set either schedule, for runs that begin at certain times, or continuous"),
        ({"continuous": True, "schedule": "@daily"}, "Set either schedule, for runs that begin at"),
        ({"schedule": "* * * *"}, "schedule must have five fields with one space between them"),
        ({"schedule": "@every 1h"}, "schedule must have five fields"),
        ({"schedule": "CRON_TZ=UTC 0 0 * * *"}, "schedule must have five fields"),
        ({"schedule": "60 * * * *"}, "The first field of schedule is the minute: 0 to 59"),
        ({"schedule": "0 24 * * *"}, "The second field of schedule is the hour: 0 to 23"),
        ({"schedule": "0 0 32 * *"}, "The third field of schedule is the day of the month: 1 to 31"),
        ({"schedule": "0 0 * 13 *"}, "The fourth field of schedule is the month: 1 to 12"),
        ({"schedule": "0 0 * * 7"}, "The fifth field of schedule is the day of the week: 0 (Sunday) to 6"),
        ({"timeZone": "Local"}, "timeZone must be a name of the IANA time zone database"),
        ({"timeZone": "+02:00"}, "timeZone must be a name of the IANA time zone database"),
        ({"continuous": True, "timeZone": "UTC"}, "timeZone belongs to schedule, which is not set"),
        ({"trigger": {"interval": "60s"}}, "trigger belongs to continuous: true"),
        ({"continuous": True, "trigger": {"interval": "often"}}, "spec.trigger.interval: Invalid value"),
        ({"continuous": True, "trigger": {"interval": "0s"}}, "trigger.interval must be from 1ms to 24h"),
        ({"continuous": True, "trigger": {"interval": "86401s"}}, "trigger.interval must be from 1ms to 24h"),
        ({"continuous": True, "trigger": {"interval": "99999999h"}}, "trigger.interval must be from 1ms to"),
        ({"restart": {"delay": "1s"}}, "restart belongs to continuous: true"),
        ({"continuous": True, "retries": 1}, "retries belongs to schedule"),
        ({"continuous": True, "activeDeadlineSeconds": 5}, "activeDeadlineSeconds belongs to schedule"),
        ({"continuous": True, "startingDeadlineSeconds": 60}, "startingDeadlineSeconds belongs to schedule"),
        ({"startingDeadlineSeconds": 5}, "should be greater than or equal to 10"),
        ({"successfulRunsHistoryLimit": 0}, "should be greater than or equal to 1"),
        ({"failedRunsHistoryLimit": -5}, "should be greater than or equal to 1"),
        ({"concurrencyPolicy": "Replace"}, 'unknown field "spec.concurrencyPolicy"'),
        ({"source": {}}, "source needs either streams or pattern"),
        ({"source": {"streams": ["a"], "pattern": "a"}}, "source needs either streams or pattern"),
        ({"source": {"streams": ["a b"]}}, "spec.source.streams[0]: Invalid value"),
        ({"source": {"streams": ["a"], "start": "yesterday"}}, "start must be earliest, latest, or a time"),
        ({"sink": {}}, "sink needs either parquet or iceberg"),
        (
            {"sink": {"parquet": PARQUET, "iceberg": {"table": "a.b", "catalog": REST}}},
            "sink needs either parquet or iceberg",
        ),
        ({"sink": {"iceberg": {"table": "orders", "catalog": REST}}}, "spec.sink.iceberg.table: Invalid"),
        ({"sink": {"iceberg": {"table": "a.b", "catalog": {"type": "rest"}}}}, "type rest needs uri"),
        ({"sink": {"iceberg": {"table": "a.b", "catalog": {"type": "sql"}}}}, "type sql needs warehouse"),
        ({"sink": warehouse("/tmp/wh")}, "warehouse is in the file system of the driver"),
        ({"sink": warehouse("wh")}, "warehouse is in the file system of the driver"),
        ({"sink": warehouse("/tmp/wh", **REST)}, "warehouse is in the file system of the driver"),
        ({"sink": warehouse("file:///lake/wh")}, "catalog.warehouse is a file: URL. Give the path alone"),
        (
            {"sink": warehouse("s3://lake/wh", uri="sqlite:////tmp/catalog.db")},
            "sink.iceberg.catalog.uri names a file of SQLite in the file system of the driver",
        ),
        ({"sink": {"parquet": {"path": "file:///tmp/x"}}}, "path is a file: URL. Give the path alone"),
        ({"checkpoint": "file:///lake/x"}, "checkpoint is a file: URL. Give the path alone"),
        (
            {
                "value": {"format": "json", "schema": "id bigint", "badRecords": "deadLetter"},
                "deadLetter": {"path": "file:///lake/dead"},
            },
            "path is a file: URL. Give the path alone",
        ),
        ({"sink": {"parquet": {"path": "lake"}}}, "path must be absolute or a URI"),
        ({"sink": {"parquet": {"path": "/data/x"}}}, "sink.parquet.path is in the file system of the driver"),
        ({"sink": {"parquet": {**PARQUET, "compactSmallFiles": True}}}, "compactSmallFiles needs a path on"),
        (
            {"sink": {"parquet": {**PARQUET, "partitionBy": {"time": "week"}}}},
            'spec.sink.parquet.partitionBy.time: Unsupported value: "week"',
        ),
        (
            {"sink": {"iceberg": {"table": "a.b", "catalog": REST, "expireSnapshotsOlderThan": "60s"}}},
            "spec.sink.iceberg.expireSnapshotsOlderThan: Invalid value",
        ),
        ({"checkpoint": "/tmp/x"}, "checkpoint is in the file system of the driver"),
        ({"checkpoint": "/lakes/x"}, "checkpoint is in the file system of the driver"),
        ({"value": {"format": "xml"}}, 'spec.value.format: Unsupported value: "xml"'),
        ({"value": {"format": "protobuf", "schema": "AAAA"}}, "value.message names the message of"),
        ({"value": {"format": "json", "schema": "id int", "message": "R"}}, "other formats have none"),
        ({"value": {**PROTOBUF, "schema": "AAAA"}}, "value.descriptorFile is for format protobuf, in place"),
        (
            {"value": {"format": "avro", "descriptorFile": "/x"}},
            "value.descriptorFile is for format protobuf",
        ),
        ({"value": {"format": "avro", "schema": "x" * 262_145}}, "spec.value.schema: Too long"),
        ({"deadLetter": {"path": "/lake/dead"}}, "badRecords: deadLetter and deadLetter belong together"),
        (
            {
                "value": {"format": "json", "schema": "id bigint", "badRecords": "deadLetter"},
                "deadLetter": {"stream": "orders"},
            },
            "deadLetter.stream must not be a stream that the Ingestion reads",
        ),
        ({"objectStore": {"endpoint": "minio:9000"}}, "spec.objectStore.endpoint: Invalid value"),
        ({"sparkConf": {"spark.master": "local"}}, "sparkConf must not set the master"),
        ({"sparkConf": {"spark.kubernetes.x": "1"}}, "sparkConf must not set the master"),
        ({"sparkConf": {"x": "1"}}, "Names in sparkConf must begin with 'spark.'"),
        ({"env": [{"name": "A"}]}, "needs either value or valueFrom"),
        ({"env": [{"name": "SPARK_HOME", "value": "/"}]}, "belong to the operator"),
        ({"volumes": [{"name": "lake"}]}, "A volume needs exactly one of persistentVolumeClaim"),
        ({"volumes": []}, "volumeMounts names a volume that is not in volumes"),
        ({"executor": {"instances": -1}}, "should be greater than or equal to 0"),
        ({"driver": {"memory": "much"}}, "spec.driver.memory: Invalid value"),
        ({"image": ""}, "spec.image: Invalid value"),
    ],
)
def test_an_impossible_ingestion_is_rejected(plane: ControlPlane, spec: Spec, sentence: str) -> None:
    manifest = ingestion(**spec)
    manifest["spec"] = {name: value for name, value in manifest["spec"].items() if value is not None}

    assert sentence in plane.created(manifest)


@pytest.mark.parametrize("name", ["a.b", "9lives", "x" * 48])
def test_a_name_that_pods_cannot_begin_with_is_rejected(plane: ControlPlane, name: str) -> None:
    refused = plane.created(ingestion(name))

    assert "metadata.name must have at most 47 characters" in refused


def test_the_cluster_of_an_ingestion_cannot_change(plane: ControlPlane) -> None:
    manifest = changed(plane, ingestion(), ingestion(cluster="other"))

    assert "cluster cannot change" in plane.replaced(manifest)


@pytest.mark.parametrize(
    "spec",
    [
        {"schedule": "0,30 */2 1-15 JAN,jul MON-fri", "timeZone": "America/Argentina/Buenos_Aires"},
        {"schedule": "5/10 ? * * 0", "timeZone": "Etc/GMT+5"},
        {"schedule": "@hourly", "activeDeadlineSeconds": 3600, "startingDeadlineSeconds": 60, "retries": 0},
        {
            "continuous": True,
            "trigger": {"interval": "500ms"},
            "restart": {"delay": "1s", "delayMax": "1m30s", "resetAfter": "1h"},
        },
        {"continuous": True, "trigger": {"interval": "24h"}},
        {"continuous": True, "trigger": {"interval": "86400000ms"}},
        {"sink": warehouse("/lake/wh")},
        {"sink": warehouse("s3://lake/wh", uri="sqlite:////lake/catalog.db")},
        {"sink": warehouse("s3://lake/wh", uri="postgresql+psycopg2://db/catalog")},
        {"sink": warehouse("production", **REST)},
        {"source": {"pattern": "orders\\..*", "start": "2026-01-31T00:00:00+01:00"}},
        {
            "sink": {"parquet": {**PARQUET, "compactSmallFiles": True, "partitionBy": {"time": "day"}}},
            "value": {"format": "json", "schema": "id bigint", "badRecords": "deadLetter"},
            "deadLetter": {"stream": "dead"},
        },
        {
            "sink": {
                "iceberg": {
                    "table": "shop.orders",
                    "catalog": REST,
                    "compactSmallFiles": True,
                    "expireSnapshotsOlderThan": "7d",
                }
            },
            "checkpoint": "s3a://lake/_checkpoints/orders",
            "objectStore": {"endpoint": "http://minio:9000", "region": "us-east-1"},
            "volumes": [],
            "volumeMounts": [],
            "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        },
        {"value": {"format": "avro", "schema": '{"type": "record"}' + " " * 200_000}},
        {"value": {"format": "arrow", "schema": "id bigint, amount double"}},
        {"value": {"format": "protobuf", "schema": "AAAA", "message": "shop.Order"}},
        {"value": PROTOBUF},
        {"executor": {"instances": 0, "cores": 4}, "driver": {"memory": "2Gi", "memoryOverhead": "1Gi"}},
    ],
)
def test_a_possible_ingestion_is_accepted(plane: ControlPlane, spec: dict[str, Any]) -> None:
    assert not plane.created(ingestion(**spec))


def test_the_ingestions_of_the_documents_are_accepted(plane: ControlPlane) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (shown,) = [one for text in blocks if (one := yaml.safe_load(text)).get("kind") == "Ingestion"]
    example = yaml.safe_load((ROOT / "examples" / "ingestion.yaml").read_text("utf-8"))
    del shown["metadata"]["namespace"]

    for manifest in (shown, example):
        assert not plane.refusal("create", "--dry-run=server", "-f", "-", given=manifest)
