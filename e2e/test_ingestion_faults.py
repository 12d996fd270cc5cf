"""Faults in the middle of a run of an Ingestion: the run or the next one lands each record once."""

from __future__ import annotations

import pytest

from e2e.cluster.cluster import Cluster
from e2e.conftest import Figures
from e2e.ingestion import (
    EVERY_MINUTE,
    SMALL_BATCHES,
    Sales,
    ingestion,
    pods,
    reason,
    sentence,
    status,
    until_in_the_middle,
    until_succeeded,
    until_written,
)
from e2e.kube import Kube, wait_until
from e2e.lake import Lake
from e2e.release import CLUSTER, Release

pytestmark = pytest.mark.usefixtures("healthy")


def next_run(kube: Kube, sales: Sales, name: str, figures: Figures) -> None:
    """Lets one more run begin, with further records, and checks what landed altogether."""
    before = status(kube, name)
    sales.publish(100)
    kube.apply(ingestion(name, source=SMALL_BATCHES))
    found = until_succeeded(kube, name, before["lastSuccess"])
    assert found["lastRun"]["name"] != before["lastRun"]["name"]
    assert reason(found) == "Scheduled"
    figures.note(f"{name}, after the next run", sentence(found))
    sales.check_files(name)


def test_a_killed_driver_is_replaced(
    name: str, kube: Kube, lake: Lake, sales: Sales, figures: Figures
) -> None:
    kube.apply(ingestion(name, source=SMALL_BATCHES))
    driver = until_in_the_middle(kube, lake, name)

    kube.exec(driver, "pkill", "-KILL", "java")

    found = until_succeeded(kube, name)
    assert found["attempts"] == 2
    figures.note("driver killed", sentence(found))
    sales.check_files(name)
    next_run(kube, sales, name, figures)


def test_a_killed_executor_is_replaced(
    name: str, kube: Kube, lake: Lake, sales: Sales, figures: Figures
) -> None:
    kube.apply(ingestion(name, source=SMALL_BATCHES))
    driver = until_in_the_middle(kube, lake, name)
    (executor,) = pods(kube, name, "executor")

    kube.exec(executor, "pkill", "-KILL", "java")

    def lack() -> str:
        others = set(pods(kube, name, "executor")) - {executor}
        return "" if others else f"no other executor runs: {sentence(status(kube, name))}"

    wait_until(lack, 180)
    assert list(pods(kube, name, "driver")) == [driver]
    found = until_succeeded(kube, name)
    assert found["attempts"] == 1
    figures.note("executor killed", sentence(found))
    sales.check_files(name)
    next_run(kube, sales, name, figures)


# The volumes of this cluster are bound to no node. Where they are, a driver waits for its node.
def test_a_driver_moves_when_its_node_is_drained(
    name: str, kube: Kube, lake: Lake, sales: Sales, release: Release, nodes: Cluster, figures: Figures
) -> None:
    if len(nodes.nodes) == 1:
        pytest.skip("a driver needs another node to move to")
    kube.kubectl("cordon", release.load_node)
    try:
        kube.apply(ingestion(name, source=SMALL_BATCHES))
        driver = until_in_the_middle(kube, lake, name)
    finally:
        kube.kubectl("uncordon", release.load_node)
    node = pods(kube, name, "driver")[driver]

    # Executors belong to the driver's pod, and to no controller that kubectl knows.
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=240s")
    kube.kubectl("drain", node, *words, seconds=260)
    try:
        found = until_succeeded(kube, name)
        figures.note("node drained", sentence(found))
        (job,) = kube.list("jobs", f"tidelog.io/ingestion={name}")
        # Kubernetes counts the eviction as a failed pod, but not towards `retries`.
        assert job["status"]["succeeded"] == 1
        assert job["metadata"]["name"] == found["lastRun"]["name"]
        sales.check_files(name)
    finally:
        kube.kubectl("uncordon", node)
    release.until_healthy()
    next_run(kube, sales, name, figures)


def test_a_run_continues_while_brokers_are_replaced(
    name: str, kube: Kube, lake: Lake, sales: Sales, release: Release, figures: Figures
) -> None:
    before = {pod: one["metadata"]["uid"] for pod, one in release.pods().items()}
    kube.apply(ingestion(name, source=SMALL_BATCHES))
    until_in_the_middle(kube, lake, name)

    kube.kubectl("rollout", "restart", f"statefulset/{CLUSTER}")

    found = until_succeeded(kube, name)
    release.until_rolled(before)
    assert found["attempts"] == 1
    figures.note("brokers replaced during a run", sentence(found))
    sales.check_files(name)
    next_run(kube, sales, name, figures)


def test_runs_do_not_need_the_operator(
    name: str, kube: Kube, lake: Lake, sales: Sales, release: Release, figures: Figures
) -> None:
    kube.apply(ingestion(name, source=SMALL_BATCHES, schedule=EVERY_MINUTE))
    until_in_the_middle(kube, lake, name)

    release.kill_operator()

    first = until_succeeded(kube, name)
    figures.note("operator killed during a run", sentence(first))
    assert first["attempts"] == 1

    release.kill_operator()
    sales.publish(100)

    last = until_written(kube, name, sales.count)
    figures.note("operator killed between runs", sentence(last))
    sales.check_files(name)
