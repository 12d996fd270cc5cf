"""Ingestions as users write them, and what their statuses say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from e2e import store
from e2e.kube import Kube, wait_until
from e2e.lake import CATALOG, CLAIM, PLACE, WAREHOUSE, Lake
from e2e.release import CLUSTER, REGISTRY, TAG

STREAM: Final = "sales"
IMAGE: Final = f"{REGISTRY}/spark:{TAG}"
RUN_SECONDS_MAX: Final = 600.0
"""A run may be due in a minute; then driver and executor start on busy cores."""
STATUS_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 1.0
"""Each look is a process of kubectl, on the cores that the run needs."""

LOCAL: Final = {"executor": {"instances": 0, "cpu": "100m"}}
"""The driver does all work."""
EVERY_MINUTE: Final = "* * * * *"

QUICK_START: Final = {"name": "JAVA_TOOL_OPTIONS", "value": "-XX:TieredStopAtLevel=1"}
"""Java compiles less, so driver and executor start with less work for the few cores of a test."""

SMALL_BATCHES: Final = {"streams": [STREAM], "options": {"maxOffsetsPerTrigger": "100"}}
"""A source that makes a run of many micro-batches, so that a fault happens in the middle of it."""


def soon() -> str:
    """Returns a schedule of which one run is due within 15 to 75 seconds, and the next one tomorrow."""
    due = datetime.now(UTC) + timedelta(seconds=75)
    return f"{due.minute} {due.hour} * * *"


def ingestion(name: str, **spec: Any) -> dict[str, Any]:
    """Returns an Ingestion that writes Parquet files to the volume once, soon."""
    when: dict[str, Any] = {} if spec.get("continuous") else {"schedule": soon()}
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Ingestion",
        "metadata": {"name": name},
        "spec": {
            "cluster": CLUSTER,
            "image": IMAGE,
            **when,
            "source": {"streams": [STREAM]},
            "sink": {"parquet": {"path": f"{PLACE}/{name}", "partitionBy": {"time": "day"}}},
            "checkpoint": f"{PLACE}/_checkpoints/{name}",
            "volumes": [{"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}}],
            "volumeMounts": [{"name": CLAIM, "mountPath": PLACE}],
            # A node of a test has few cores. Memory has the defaults.
            "driver": {"cpu": "100m"},
            "executor": {"instances": 1, "cpu": "100m"},
            **spec,
            "env": [QUICK_START, *spec.get("env", ())],
        },
    }


def to_table(table: str) -> dict[str, Any]:
    """Returns the parts of a spec that write an Iceberg table in the object store. Its catalog is on the
    volume, and so is the checkpoint."""
    catalog = {"type": "sql", "uri": CATALOG, "warehouse": WAREHOUSE}
    return {
        "sink": {"iceberg": {"table": table, "catalog": catalog, "partitionBy": {"time": "day"}}},
        "objectStore": store.OBJECT_STORE,
        "env": store.ENV,
    }


class Sales:
    """The records of the stream `sales`: how many there are."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.count = lake, 0

    def __repr__(self) -> str:
        return f"<Sales {self.count}>"

    def publish(self, count: int) -> None:
        """Publishes messages to NATS, while nothing is wrong."""
        self.lake.publish(self.count, count)
        self.count += count

    def append(self, count: int) -> None:
        """Appends records, also while brokers restart."""
        self.lake.append(STREAM, self.count, count)
        self.count += count

    def check_files(self, name: str) -> None:
        """Asserts that the files of an Ingestion have each record of the stream exactly once."""
        assert self.lake.compare(name, STREAM, self.count) == self._all()

    def check_table(self, table: str) -> None:
        """Asserts that the table has each record of the stream exactly once."""
        assert self.lake.compare_table(table, STREAM, self.count) == self._all()

    def _all(self) -> dict[str, Any]:
        return {"rows": self.count, "once": True, "same": True}


# --- observations


def status(kube: Kube, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (kube.get("ingestion", name) or {}).get("status") or {}
    return found


def reason(found: dict[str, Any], kind: str = "Ready") -> str:
    return next((one["reason"] for one in found.get("conditions", ()) if one["type"] == kind), "")


def message(found: dict[str, Any], kind: str = "Ready") -> str:
    return next((one["message"] for one in found.get("conditions", ()) if one["type"] == kind), "")


def sentence(found: dict[str, Any]) -> str:
    """Returns what the status says first, for the table of figures."""
    return f"{reason(found)}: {message(found)}"


def position(found: dict[str, Any]) -> int:
    """Returns how many records of the stream the status says are written."""
    return sum((found.get("offsets") or {}).get(STREAM, {}).values())


def pods(kube: Kube, name: str, app: str) -> dict[str, str]:
    """Returns the nodes of the running pods of an Ingestion, by pod. `app`: driver or executor."""
    labels = f"tidelog.io/ingestion={name},app.kubernetes.io/name=tidelog-{app}"
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"]
        for one in kube.list("pods", labels)
        if one["status"].get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]
    }


def until_reason(kube: Kube, name: str, wanted: str, kind: str = "Ready") -> dict[str, Any]:
    return until(kube, name, lambda found: reason(found, kind) == wanted, wanted, STATUS_SECONDS_MAX)


def until_succeeded(kube: Kube, name: str, after: str = "") -> dict[str, Any]:
    """Waits for a run that succeeded later than at `after`."""
    what = f"has a run that succeeded after {after or 'its creation'}"
    return until(kube, name, lambda found: found.get("lastSuccess", "") > after, what)


def until_written(kube: Kube, name: str, count: int) -> dict[str, Any]:
    """Waits until the status says that so many records are written, and none is left."""
    return until(
        kube, name, lambda found: position(found) == count and found.get("lag") == 0, f"is at {count}"
    )


def until(
    kube: Kube,
    name: str,
    true: Callable[[dict[str, Any]], bool],
    what: str,
    seconds: float = RUN_SECONDS_MAX,
) -> dict[str, Any]:
    """Waits until the status is so, and returns it."""
    last: dict[str, Any] = {}

    def lack() -> str:
        nonlocal last
        last = status(kube, name)
        return "" if true(last) else f"{name}: not {what}, but {last}"

    wait_until(lack, seconds, LOOK_SECONDS)
    return last


def until_in_the_middle(kube: Kube, lake: Lake, name: str) -> str:
    """Waits until a run has written its first files, and returns the pod of its driver."""

    def lack() -> str:
        assert not status(kube, name).get("lastSuccess"), "the run ended before the fault"
        return "" if lake.files(name) else f"{name} has written no file: {sentence(status(kube, name))}"

    wait_until(lack, RUN_SECONDS_MAX, LOOK_SECONDS)
    (driver,) = pods(kube, name, "driver")
    return driver
