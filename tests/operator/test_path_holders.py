"""Which Jobs, CronJobs and pods hold the paths of Ingestions, as the cache of objects has them."""

from __future__ import annotations

from typing import Any

import pytest

from support.kube.ingestions import ingestion_manifest
from tidelog_operator.ingestions import IngestionObject, read_ingestion
from tidelog_operator.kubernetes.jobs import read_holders
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import Manifest
from tidelog_operator.resources.path_claims import path_claims
from tidelog_operator.resources.runs import continuous_job, cron_job

CREATED = "2026-01-01T00:00:00Z"


def one(**spec: Any) -> IngestionObject:
    return read_ingestion(ingestion_manifest(**spec))


def there(manifest: Manifest, **status: Any) -> Manifest:
    """The object as the API server has it."""
    name = manifest["metadata"]["name"]
    meta = {"uid": f"uid-of-{name}", "resourceVersion": "1", "creationTimestamp": CREATED}
    return {**manifest, "metadata": {**manifest["metadata"], **meta}, "status": status}


def job(**status: Any) -> Manifest:
    flow = one(continuous=True)
    assert flow.spec is not None
    return there(continuous_job(flow, flow.spec, 1, 0), **status)


def pod(**status: Any) -> Manifest:
    made = job()
    template = made["spec"]["template"]["metadata"]
    owner = {"kind": "Job", "name": "orders-1", "uid": made["metadata"]["uid"]}
    meta = {**template, "namespace": "shop", "name": "orders-1-x", "ownerReferences": [owner]}
    return there({"kind": "Pod", "metadata": meta}, **status)


def held(*manifests: Manifest) -> list[tuple[str, str, bool]]:
    """Returns kind and name of each holder, and whether it holds the paths of the Ingestion."""
    objects = Objects(lambda cluster: None)
    for each in manifests:
        (objects.pod if each["kind"] == "Pod" else objects.owned)(each, gone=False)
    flow = one(continuous=True)
    assert flow.spec is not None
    wanted = {claim.identity for claim in path_claims(flow, flow.spec)}
    return [(each.kind, each.key.name, each.paths == wanted) for each in read_holders(objects)]


def test_a_job_holds_its_paths_until_it_has_ended() -> None:
    ended = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": CREATED}]}

    assert held(job()) == [("Job", "orders-1", True)]
    assert held(job(**ended)) == []


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        ({"phase": "Pending"}, True),
        ({"phase": "Running", "containerStatuses": [{"name": "driver", "state": {"running": {}}}]}, True),
        ({"phase": "Failed", "reason": "Evicted"}, False),
        (
            {
                "phase": "Running",
                "containerStatuses": [{"name": "driver", "state": {"terminated": {"exitCode": 75}}}],
            },
            False,
        ),
    ],
    ids=["pending", "running", "evicted", "ended"],
)
def test_a_pod_holds_its_paths_until_it_has_ended(status: dict[str, Any], holds: bool) -> None:
    assert held(pod(**status)) == ([("Pod", "orders-1-x", True)] if holds else [])


def test_a_pod_that_is_being_deleted_runs_until_it_is_gone() -> None:
    deleted = pod(phase="Running")
    deleted["metadata"]["deletionTimestamp"] = CREATED

    assert held(deleted) == [("Pod", "orders-1-x", True)]


@pytest.mark.parametrize("suspended", [False, True])
def test_a_cron_job_holds_its_paths_unless_it_is_suspended(suspended: bool) -> None:
    daily = one()
    assert daily.spec is not None
    assert daily.spec.timetable is not None

    found = held(there(cron_job(daily, daily.spec, daily.spec.timetable, suspended=suspended)))

    assert found == ([] if suspended else [("CronJob", "orders", True)])
