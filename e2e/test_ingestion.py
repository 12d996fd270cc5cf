"""Ingestions on real nodes: runs write Parquet files to a volume, and the status says what is so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from e2e.kube import Kube, Refused, wait_until
from e2e.lake import CLAIM, PLACE, Lake
from e2e.release import CLUSTER, REGISTRY, TAG, Release, stream

pytestmark = pytest.mark.usefixtures("healthy")

STREAM = "sales"
IMAGE = f"{REGISTRY}/spark:{TAG}"
RUN_SECONDS_MAX = 420.0
"""A run may be due in a minute; then driver and executor start on busy cores."""
STATUS_SECONDS_MAX = 120.0


LOCAL = {"instances": 0}
"""The driver does all work."""


def soon() -> str:
    """Returns a schedule of which one run is due within 15 to 75 seconds, and the next one tomorrow."""
    due = datetime.now(UTC) + timedelta(seconds=75)
    return f"{due.minute} {due.hour} * * *"


def ingestion(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Ingestion",
        "metadata": {"name": name},
        "spec": {
            "cluster": CLUSTER,
            "image": IMAGE,
            "schedule": soon(),
            "source": {"streams": [STREAM]},
            "sink": {"parquet": {"path": f"{PLACE}/{name}", "partitionBy": {"time": "day"}}},
            "checkpoint": f"{PLACE}/_checkpoints/{name}",
            "volumes": [{"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}}],
            "volumeMounts": [{"name": CLAIM, "mountPath": PLACE}],
            # A node of a test has few cores.
            "driver": {"cpu": "100m", "memory": "512Mi", "memoryOverhead": "1Gi"},
            "executor": {"instances": 1, "cpu": "100m", "memory": "512Mi", "memoryOverhead": "512Mi"},
            **spec,
        },
    }


@pytest.fixture(scope="module")
def lake(release: Release) -> Iterator[Lake]:
    release.until_healthy()
    release.kube.apply(stream(STREAM, subject=f"{STREAM}.>", partitions=3, deletionPolicy="Delete"))
    release.until_healthy()
    made = Lake(release.kube)
    yield made
    made.close()
    release.kube.kubectl("delete", "stream.tidelog.io", STREAM, seconds=120)


class Sales:
    """The records of the stream `sales`: how many there are."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.count = lake, 0

    def __repr__(self) -> str:
        return f"<Sales {self.count}>"

    def publish(self, count: int) -> None:
        self.lake.publish(self.count, count)
        self.count += count

    def landed(self, name: str) -> dict[str, Any]:
        return self.lake.compare(name, STREAM, self.count)


@pytest.fixture(scope="module")
def sales(lake: Lake) -> Sales:
    made = Sales(lake)
    made.publish(1000)
    return made


def status(kube: Kube, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (kube.get("ingestion", name) or {}).get("status") or {}
    return found


def reason(found: dict[str, Any], kind: str = "Ready") -> str:
    return next((one["reason"] for one in found.get("conditions", ()) if one["type"] == kind), "")


def message(found: dict[str, Any], kind: str = "Ready") -> str:
    return next((one["message"] for one in found.get("conditions", ()) if one["type"] == kind), "")


def pods(kube: Kube, name: str, app: str) -> list[str]:
    """Returns the running pods of an Ingestion."""
    labels = f"tidelog.io/ingestion={name},app.kubernetes.io/name=tidelog-{app}"
    found = kube.list("pods", labels)
    return [one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running"]


def until_reason(kube: Kube, name: str, wanted: str) -> dict[str, Any]:
    def lack() -> str:
        found = status(kube, name)
        return "" if reason(found) == wanted else f"{name} is {found}, not {wanted}"

    wait_until(lack, STATUS_SECONDS_MAX)
    return status(kube, name)


def until_succeeded(kube: Kube, name: str, after: str = "") -> dict[str, Any]:
    """Waits for a run that succeeded later than at `after`."""

    def lack() -> str:
        found = status(kube, name)
        return "" if found.get("lastSuccess", "") > after else f"{name} has no such run: {found}"

    wait_until(lack, RUN_SECONDS_MAX)
    return status(kube, name)


@pytest.fixture
def name(request: pytest.FixtureRequest, kube: Kube) -> Iterator[str]:
    """The name of an Ingestion, which is deleted with its runs."""
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:30].strip("-")
    yield name
    kube.kubectl("delete", "ingestion", name, "--ignore-not-found", "--cascade=foreground", seconds=180)


def test_two_runs_land_the_records_of_the_stream(name: str, kube: Kube, sales: Sales) -> None:
    kube.apply(ingestion(name, schedule="* * * * *"))
    first = until_succeeded(kube, name)
    assert sales.landed(name) == {"rows": sales.count, "same": True}

    sales.publish(500)

    def lack() -> str:
        found = status(kube, name)
        at = sum((found.get("offsets") or {}).get(STREAM, {}).values())
        return "" if at == sales.count else f"{name} is at {found}"

    wait_until(lack, RUN_SECONDS_MAX)
    last = until_succeeded(kube, name, first["lastSuccess"])
    assert last["lag"] == 0
    assert sales.landed(name) == {"rows": sales.count, "same": True}


def test_a_killed_driver_is_replaced_within_its_run(name: str, kube: Kube, sales: Sales) -> None:
    kube.apply(ingestion(name))
    wait_until(lambda: "" if pods(kube, name, "executor") else "no executor runs", RUN_SECONDS_MAX)
    driver = pods(kube, name, "driver")[0]

    kube.exec(driver, "pkill", "-KILL", "java")

    found = until_succeeded(kube, name)
    assert found["attempts"] == 2
    assert sales.landed(name) == {"rows": sales.count, "same": True}


def test_no_run_begins_while_suspended(name: str, kube: Kube, sales: Sales) -> None:
    kube.apply(ingestion(name, suspend=True, schedule="* * * * *", executor=LOCAL))
    until_reason(kube, name, "Suspended")
    minute = time.time() // 60
    wait_until(lambda: "" if time.time() // 60 > minute else "no run was due", 70)
    until_reason(kube, name, "Suspended")
    assert kube.list("jobs", f"tidelog.io/ingestion={name}") == []

    kube.apply(ingestion(name, executor=LOCAL))

    until_succeeded(kube, name)
    assert sales.landed(name) == {"rows": sales.count, "same": True}


def test_a_bad_image_is_told_and_corrected(name: str, kube: Kube, sales: Sales) -> None:
    absent = {"image": "tidelog.test/absent:1", "imagePullPolicy": "Never"}
    kube.apply(ingestion(name, executor=LOCAL, **absent))
    found = until_reason(kube, name, "NotStarted")
    assert "tidelog.test/absent:1" in message(found)

    kube.apply(ingestion(name, executor=LOCAL))

    until_succeeded(kube, name)
    assert sales.landed(name) == {"rows": sales.count, "same": True}


def test_a_bad_cron_schedule_is_refused_at_admission(name: str, kube: Kube) -> None:
    with pytest.raises(Refused, match="schedule"):
        kube.apply(ingestion(name, schedule="61 * * * *"))
    assert kube.get("ingestion", name) is None


def test_deleting_leaves_data_and_checkpoint(name: str, kube: Kube, lake: Lake, sales: Sales) -> None:
    kube.apply(ingestion(name, executor=LOCAL))
    until_succeeded(kube, name)

    kube.kubectl("delete", "ingestion", name, "--cascade=foreground", seconds=180)

    assert kube.list("pods", f"tidelog.io/ingestion={name}") == []
    assert lake.files(f"_checkpoints/{name}")
    assert sales.landed(name) == {"rows": sales.count, "same": True}
