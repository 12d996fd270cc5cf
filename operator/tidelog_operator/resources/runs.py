"""The CronJob of a scheduled Ingestion, the Jobs of a continuous one, and the pod of the driver.

Every attempt is a new pod: Kubernetes never restarts a driver in its pod, where the executors of the previous
one would still belong to it.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog_operator.ingestions import (
    EXIT_CONFIGURATION,
    EXIT_FAILED,
    IngestionObject,
    IngestionSpec,
    Timetable,
)
from tidelog_operator.model import Manifest
from tidelog_operator.resources.naming import HASH_ANNOTATION, digest, manifest_id, owned_manifest
from tidelog_operator.resources.path_claims import CLAIMS_ANNOTATION, claims_text
from tidelog_operator.resources.spark_files import (
    BLOCKS_PORT,
    CONFIG_VOLUME,
    CONTAINER_SECURITY,
    DRIVER_APP,
    DRIVER_PORT,
    FOLDER,
    files_map,
    files_name,
    labels_of,
    mounts,
    pod_spec,
)

CONTAINER: Final = "driver"
REPORT_PORT: Final = 7080
"""The port on which a driver serves its report (`tidelog_spark.kubernetes`)."""

NUMBER_LABEL: Final = "tidelog.io/run"
"""The label with the number of a continuous run."""
FAILURES_ANNOTATION: Final = "tidelog.io/failures"
"""The annotation with the number of failures in a row before a continuous run."""
RUN_ANNOTATION: Final = "tidelog.io/run-manifest"
"""The annotation with the hash of what a run was made from."""

STOP_SECONDS: Final = 60
"""How long a driver may take to stop."""

DEFAULT_ZONE: Final = "Etc/UTC"


def cron_job(one: IngestionObject, spec: IngestionSpec, timetable: Timetable, *, suspended: bool) -> Manifest:
    """Returns the CronJob of a scheduled Ingestion."""
    body: dict[str, Any] = {
        "schedule": timetable.schedule,
        # Without a zone, that of the controller would decide.
        "timeZone": timetable.time_zone or DEFAULT_ZONE,
        "concurrencyPolicy": "Forbid",
        "suspend": suspended,
        "successfulJobsHistoryLimit": spec.succeeded_kept,
        "failedJobsHistoryLimit": spec.failed_kept,
        "jobTemplate": {
            "metadata": {
                "labels": labels_of(one, DRIVER_APP),
                "annotations": {RUN_ANNOTATION: scheduled_hash(one, spec, timetable)},
            },
            "spec": _scheduled(one, spec, timetable),
        },
    }
    if timetable.starting_deadline_s is not None:
        body["startingDeadlineSeconds"] = timetable.starting_deadline_s
    labels = labels_of(one, DRIVER_APP)
    return owned_manifest(one, "batch/v1", "CronJob", one.key.name, {"spec": body}, labels=labels)


def scheduled_hash(one: IngestionObject, spec: IngestionSpec, timetable: Timetable) -> str:
    """Returns the hash of everything that decides how a scheduled run works."""
    return digest(_scheduled(one, spec, timetable))


def _scheduled(one: IngestionObject, spec: IngestionSpec, timetable: Timetable) -> dict[str, Any]:
    body = _job(one, spec, timetable.retries, FAIL_ONCE)
    if timetable.active_deadline_s is not None:
        body["activeDeadlineSeconds"] = timetable.active_deadline_s
    return body


DISRUPTED: Final = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""A driver that Kubernetes evicts, for example because its node is drained, has not failed. Another one
follows at once."""

FAIL_ONCE: Final = {
    "action": "FailJob",
    "onExitCodes": {
        "containerName": CONTAINER,
        "operator": "In",
        "values": [EXIT_FAILED, EXIT_CONFIGURATION],
    },
}
"""A run whose driver failed because of its configuration or its data ends: another driver would fail too."""


def continuous_hash(one: IngestionObject, spec: IngestionSpec) -> str:
    """Returns the hash of everything that decides how a continuous run works. A run with another hash is
    stopped, and another one begins."""
    return digest(_job(one, spec, 0))


def continuous_job(one: IngestionObject, spec: IngestionSpec, number: int, failures: int) -> Manifest:
    """Returns the Job of one driver of a continuous Ingestion. `failures`: in a row, before it."""
    return owned_manifest(
        one,
        "batch/v1",
        "Job",
        f"{one.key.name}-{number}",
        {"spec": _job(one, spec, 0)},
        labels={**labels_of(one, DRIVER_APP), NUMBER_LABEL: str(number)},
        annotations={FAILURES_ANNOTATION: str(failures), RUN_ANNOTATION: continuous_hash(one, spec)},
    )


def _job(one: IngestionObject, spec: IngestionSpec, retries: int, *rules: Manifest) -> dict[str, Any]:
    return {
        "backoffLimit": retries,
        # The next driver begins only when the previous one has certainly ended.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [DISRUPTED, *rules]},
        "template": {
            "metadata": {
                "labels": labels_of(one, DRIVER_APP),
                # The pod is another one when its files are.
                "annotations": {
                    HASH_ANNOTATION: manifest_id(files_map(one, spec))[2],
                    CLAIMS_ANNOTATION: claims_text(one, spec),
                },
            },
            "spec": driver_pod(one, spec),
        },
    }


def driver_pod(one: IngestionObject, spec: IngestionSpec) -> dict[str, Any]:
    """Returns the spec of the driver's pod."""
    common, memory = pod_spec(spec), f"{spec.driver.memory.total_mib}Mi"
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": spec.pods.image,
        "args": ["driver"],
        "env": [
            _of_pod("TIDELOG_POD_NAME", "metadata.name"),
            _of_pod("TIDELOG_POD_UID", "metadata.uid"),
            _of_pod("TIDELOG_POD_IP", "status.podIP"),
            *(dict(each) for each in spec.pods.env),
        ],
        "ports": [
            {"name": "driver", "containerPort": DRIVER_PORT},
            {"name": "blockmanager", "containerPort": BLOCKS_PORT},
            {"name": "report", "containerPort": REPORT_PORT},
        ],
        "resources": {
            "requests": {"cpu": spec.driver.cpu, "memory": memory},
            "limits": {"memory": memory},
        },
        "volumeMounts": [
            {"name": CONFIG_VOLUME, "mountPath": FOLDER, "readOnly": True},
            *mounts(spec),
        ],
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.pods.image_pull_policy:
        container["imagePullPolicy"] = spec.pods.image_pull_policy
    return {
        **common,
        "restartPolicy": "Never",
        "serviceAccountName": spec.service_account,
        "automountServiceAccountToken": bool(spec.executors.instances),
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "volumes": [{"name": CONFIG_VOLUME, "configMap": {"name": files_name(one.key)}}, *common["volumes"]],
        "containers": [container],
    }


def _of_pod(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
