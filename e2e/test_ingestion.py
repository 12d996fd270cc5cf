"""Ingestions on real nodes: runs land in files and tables, and the status says what is so."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from e2e.conftest import Figures
from e2e.ingestion import (
    EVERY_MINUTE,
    LOCAL,
    Sales,
    ingestion,
    message,
    sentence,
    status,
    to_table,
    until_reason,
    until_succeeded,
    until_written,
)
from e2e.kube import Kube, Refused, wait_until
from e2e.lake import Lake

pytestmark = pytest.mark.usefixtures("healthy")

TABLE = "shop.sales"


@pytest.mark.parametrize("sink", ["parquet", "iceberg"])
def test_two_runs_land_the_records(sink: str, name: str, kube: Kube, sales: Sales, figures: Figures) -> None:
    began = time.monotonic()
    where = to_table(TABLE) if sink == "iceberg" else {}

    def check() -> None:
        if sink == "iceberg":
            sales.check_table(TABLE)
        else:
            sales.check_files(name)

    kube.apply(ingestion(name, schedule=EVERY_MINUTE, **where))
    first = until_succeeded(kube, name)
    figures.note(f"{sink}: kubectl apply to the first success, seconds", time.monotonic() - began)
    check()

    sales.publish(500)

    last = until_written(kube, name, sales.count)
    last = until_succeeded(kube, name, first["lastSuccess"])
    assert last["lastRun"]["name"] != first["lastRun"]["name"]
    figures.note(f"{sink}: the status after two runs", sentence(last))
    check()


def test_no_run_begins_while_suspended(name: str, kube: Kube, sales: Sales, figures: Figures) -> None:
    kube.apply(ingestion(name, suspend=True, schedule=EVERY_MINUTE, **LOCAL))
    until_reason(kube, name, "Suspended")
    minute = time.time() // 60
    wait_until(lambda: "" if time.time() // 60 > minute else "no run was due", 70)
    found = until_reason(kube, name, "Suspended")
    figures.note("suspended", sentence(found))
    assert message(found) == "No run begins while suspend is true."
    assert "nextRun" not in found
    assert kube.list("jobs", f"tidelog.io/ingestion={name}") == []
    resumed = datetime.now(UTC)

    kube.apply(ingestion(name, **LOCAL))

    # Runs that were due while it was suspended do not follow: the next one begins when it is due.
    found = until_succeeded(kube, name)
    assert datetime.fromisoformat(found["lastRun"]["startedAt"]) >= resumed.replace(second=0, microsecond=0)
    assert len(kube.list("jobs", f"tidelog.io/ingestion={name}")) == 1
    sales.check_files(name)


def test_a_bad_image_is_told_and_corrected(name: str, kube: Kube, sales: Sales, figures: Figures) -> None:
    absent = {"image": "tidelog.test/absent:1", "imagePullPolicy": "Never"}
    kube.apply(ingestion(name, **LOCAL, **absent))
    found = until_reason(kube, name, "NotStarted")
    figures.note("bad image", sentence(found))
    assert "tidelog.test/absent:1" in message(found)

    kube.apply(ingestion(name, **LOCAL))

    until_succeeded(kube, name)
    sales.check_files(name)


def test_a_bad_cron_schedule_is_refused_at_admission(name: str, kube: Kube, figures: Figures) -> None:
    with pytest.raises(Refused, match="schedule") as refused:
        kube.apply(ingestion(name, schedule="61 * * * *"))
    figures.note("bad schedule, at admission", str(refused.value).partition(": ")[2])
    assert kube.get("ingestion", name) is None


def test_a_schedule_that_never_comes_is_told(name: str, kube: Kube, figures: Figures) -> None:
    kube.apply(ingestion(name, schedule="0 0 31 2 *"))

    found = until_reason(kube, name, "NeverDue")

    figures.note("bad schedule, in the status", sentence(found))
    assert "there is no such date" in message(found)
    assert kube.list("cronjobs", f"tidelog.io/ingestion={name}") == []


def test_deleting_leaves_data_and_checkpoint(name: str, kube: Kube, lake: Lake, sales: Sales) -> None:
    kube.apply(ingestion(name, **LOCAL))
    until_succeeded(kube, name)

    kube.kubectl("delete", "ingestion", name, "--cascade=foreground", seconds=180)

    assert status(kube, name) == {}
    for kind in ("pods", "jobs", "cronjobs", "configmaps"):
        assert kube.list(kind, f"tidelog.io/ingestion={name}") == []
    assert lake.files(f"_checkpoints/{name}")
    sales.check_files(name)

    # An Ingestion of the same name continues: nothing is written twice.
    sales.publish(100)
    kube.apply(ingestion(name, **LOCAL))
    until_succeeded(kube, name)
    sales.check_files(name)
