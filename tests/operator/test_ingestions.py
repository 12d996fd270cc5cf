"""Ingestions on a real control plane, with a real broker behind a hand-made pod, and the operator as a
process. Tests set the status of Jobs and pods, which controllers and kubelets would set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import tidelog.blocking
from support.kube.broker_pods import BrokerPods
from support.kube.control_plane import ControlPlane
from support.kube.operator_process import OperatorProcess
from support.kube.specs import ingestion
from support.waiting import wait_until

pytestmark = pytest.mark.slow

Manifest = dict[str, Any]

NOW = "2026-11-25T00:00:00Z"


@pytest.fixture(scope="module")
def pods(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPods]:
    plane.apply({
        "apiVersion": "tidelog.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"image": "tidelog:1", "storage": {"size": "10Gi"}, "brokers": 1, "voters": 1},
    })  # fmt: skip
    with BrokerPods(plane, tmp_path_factory.mktemp("brokers"), "main", 1) as made:
        with tidelog.blocking.connect(made.brokers[0].address) as client:
            client.create_stream("orders")
        yield made


@pytest.fixture(scope="module", autouse=True)
def operator(
    plane: ControlPlane, pods: BrokerPods, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    with OperatorProcess(tmp_path_factory.mktemp("operator"), plane.kubeconfig) as made:
        yield made


def conditions(plane: ControlPlane, name: str) -> dict[str, Manifest]:
    status = plane.object("Ingestion", name).get("status") or {}
    return {one["type"]: one for one in status.get("conditions", ())}


def until_reason(plane: ControlPlane, name: str, reason: str) -> Manifest:
    """Waits until Ready has this reason for the present spec, and returns the condition."""

    def has_reason() -> bool:
        found = plane.object("Ingestion", name)
        current = (found.get("status") or {}).get("observedGeneration") == found["metadata"]["generation"]
        return bool(current and conditions(plane, name)["Ready"]["reason"] == reason)

    wait_until(has_reason, f"{name} has the reason {reason}, not {conditions(plane, name)}")
    return conditions(plane, name)["Ready"]


def jobs(plane: ControlPlane, name: str) -> list[Manifest]:
    return plane.objects("Job", f"tidelog.io/ingestion={name}")


def end(plane: ControlPlane, job: Manifest, code: int, message: str = "") -> None:
    """Makes the pod of a driver that has ended with this code, and ends its Job as the controller does."""
    name, meta = job["metadata"]["name"], job["metadata"]
    template = job["spec"]["template"]
    labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": name}
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": f"{name}-x", "namespace": "default", "labels": labels},
        "spec": template["spec"],
    }  # fmt: skip
    plane.kubectl("create", "-f", "-", given=pod)
    ended = {"exitCode": code, "message": message, "startedAt": NOW, "finishedAt": NOW}
    state = {"name": "driver", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"terminated": ended}}  # fmt: skip
    phase = "Failed" if code else "Succeeded"
    patch(plane, "pod", f"{name}-x", {"phase": phase, "containerStatuses": [state]})
    kind, count = ("Failed", "failed") if code else ("Complete", "succeeded")
    before = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}[kind]
    at = meta["creationTimestamp"]
    done = [
        {
            "type": one,
            "status": "True",
            "lastTransitionTime": at,
            "lastProbeTime": at,
            "reason": "x",
            "message": "y",
        }
        for one in (before, kind)
    ]
    status = {"startTime": at, count: 1, "conditions": done, "uncountedTerminatedPods": {}}
    if not code:
        status["completionTime"] = at
    patch(plane, "job", name, status)


def patch(plane: ControlPlane, kind: str, name: str, status: Manifest) -> None:
    plane.kubectl(
        "patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )


def test_a_schedule_becomes_a_cron_job_that_never_runs_twice_at_once(plane: ControlPlane) -> None:
    plane.apply(ingestion("nightly", schedule="15 3 * * *", timeZone="Europe/Berlin", retries=5))

    ready = until_reason(plane, "nightly", "Scheduled")

    spec = plane.object("CronJob", "nightly")["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["suspend"]) == ("15 3 * * *", "Europe/Berlin", False)
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 5
    assert ready["message"].startswith("No run has begun yet. The next run begins at ")
    assert plane.object("Ingestion", "nightly")["status"]["nextRun"].endswith(":15:00Z")
    files = plane.object("ConfigMap", "nightly-ingestion")["data"]
    assert "servers: main:9210" in files["job.yaml"]
    assert "spark.executor.memoryOverhead 640m" in files["spark-defaults.conf"]
    assert "spark.log.level WARN" in files["spark-defaults.conf"]


def test_suspending_keeps_the_cron_job_and_begins_no_run(plane: ControlPlane) -> None:
    plane.apply(ingestion("paused"))
    until_reason(plane, "paused", "Scheduled")

    plane.apply(ingestion("paused", suspend=True))

    until_reason(plane, "paused", "Suspended")
    assert plane.object("CronJob", "paused")["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("name", "spec", "reason", "sentence"),
    [
        ("away", {"cluster": "nowhere"}, "ClusterNotFound", "The Cluster nowhere does not exist"),
        ("mars", {"timeZone": "Mars/Olympus"}, "UnknownTimeZone", "'Mars/Olympus' is not a time zone"),
        ("backwards", {"schedule": "30-10 * * * *"}, "InvalidSchedule", "'30-10' is a range whose end"),
        ("never", {"schedule": "0 0 31 2 *"}, "NeverDue", "there is no such date"),
        (
            "unknown",
            {"source": {"streams": ["lost", "orders"]}},
            "StreamNotFound",
            "The Cluster main has no stream lost",
        ),
    ],
)
def test_what_cannot_run_says_why_and_no_run_begins(
    plane: ControlPlane, name: str, spec: Manifest, reason: str, sentence: str
) -> None:
    plane.apply(ingestion(name, **spec))

    assert sentence in until_reason(plane, name, reason)["message"]
    assert conditions(plane, name)["Valid"]["status"] == "False"
    assert plane.objects("CronJob", f"tidelog.io/ingestion={name}") == []


def test_the_younger_of_two_ingestions_with_one_checkpoint_does_not_run(plane: ControlPlane) -> None:
    plane.apply(ingestion("first", checkpoint="/lake/_checkpoints/shared"))
    until_reason(plane, "first", "Scheduled")
    # Times of creation are whole seconds.
    created = plane.object("Ingestion", "first")["metadata"]["creationTimestamp"]
    wait_until(lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") > created, "a second has passed")

    plane.apply(ingestion("second", checkpoint="/lake/x/../_checkpoints/shared"))

    message = until_reason(plane, "second", "CheckpointInUse")["message"]
    assert message.startswith("The older Ingestion first has the same checkpoint")
    plane.kubectl("delete", "ingestion", "first")
    message = until_reason(plane, "second", "WaitingForDriver")["message"]
    assert message.startswith("The CronJob first of the Ingestion first is not suspended.")
    # No garbage collection runs here.
    plane.kubectl("delete", "cronjob", "first")
    until_reason(plane, "second", "Scheduled")


def test_an_ingestion_that_becomes_impossible_suspends_its_cron_job(plane: ControlPlane) -> None:
    plane.apply(ingestion("changed"))
    until_reason(plane, "changed", "Scheduled")

    plane.apply(ingestion("changed", source={"streams": ["lost"]}))

    until_reason(plane, "changed", "StreamNotFound")
    wait_until(lambda: plane.object("CronJob", "changed")["spec"]["suspend"], "the CronJob is suspended")


def test_a_cron_job_of_another_owner_is_not_overwritten(plane: ControlPlane) -> None:
    plane.kubectl("create", "cronjob", "theirs", "--image=x", "--schedule=0 0 * * *")

    plane.apply(ingestion("theirs"))

    message = until_reason(plane, "theirs", "CannotChange")["message"]
    assert "The CronJob theirs already exists and does not belong to this Ingestion" in message


def test_a_continuous_driver_that_ended_is_replaced_by_another_one(plane: ControlPlane) -> None:
    plane.apply(ingestion("flow", continuous=True, restart={"delay": "1s"}))
    wait_until(lambda: len(jobs(plane, "flow")) == 1, "the first driver is there")

    end(plane, jobs(plane, "flow")[0], 75, json.dumps({"rows": 7, "message": "No broker answers."}))

    wait_until(lambda: len(jobs(plane, "flow")) == 2, "the second driver is there")
    second = plane.object("Job", "flow-2")
    assert second["metadata"]["annotations"]["tidelog.io/failures"] == "1"

    def told() -> bool:
        events = plane.kubectl("get", "events", "--field-selector", "reason=RunFailed", "-o", "json")
        return "The run flow-1 failed. No broker answers." in events

    wait_until(told, "an event says why")


def test_an_ingestion_that_is_created_again_waits_for_the_old_driver(plane: ControlPlane) -> None:
    plane.apply(ingestion("again", continuous=True, checkpoint="/lake/_checkpoints/again"))
    wait_until(lambda: len(jobs(plane, "again")) == 1, "the first driver is there")
    old = jobs(plane, "again")[0]

    plane.kubectl("delete", "ingestion", "again")
    plane.apply(ingestion("again", continuous=True, checkpoint="/lake/_checkpoints/again"))

    message = until_reason(plane, "again", "WaitingForDriver")["message"]
    assert message.startswith("The Job again-1 of an earlier Ingestion again has not ended.")
    assert [one["metadata"]["uid"] for one in jobs(plane, "again")] == [old["metadata"]["uid"]]
    # No garbage collection runs here.
    plane.kubectl("delete", "job", "again-1")
    wait_until(lambda: len(jobs(plane, "again")) == 1, "the driver of the second Ingestion is there")
    assert jobs(plane, "again")[0]["metadata"]["uid"] != old["metadata"]["uid"]


def test_a_wrong_configuration_is_not_tried_again_before_it_changes(plane: ControlPlane) -> None:
    plane.apply(ingestion("wrong", continuous=True, restart={"delay": "1ms"}))
    wait_until(lambda: len(jobs(plane, "wrong")) == 1, "the first driver is there")

    end(plane, jobs(plane, "wrong")[0], 2, "sink.parquet: no such option.")

    ready = until_reason(plane, "wrong", "BadConfiguration")
    assert ready["message"].endswith("then to false. sink.parquet: no such option.")
    assert len(jobs(plane, "wrong")) == 1
    plane.apply(ingestion("wrong", continuous=True, restart={"delay": "1ms"}, image="tidelog/spark:2"))
    wait_until(lambda: len(jobs(plane, "wrong")) == 2, "the changed spec has a driver")
