"""The ConfigMap of an Ingestion: the job's configuration file, Spark's settings, the executors' template.

The driver adds what only its pod knows (`tidelog_spark.kubernetes`): its address, and the names of executors.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tidelog_operator.ingestions import IngestionObject, IngestionSpec
from tidelog_operator.model import Manifest, ObjectKey
from tidelog_operator.resources.naming import (
    CLIENT_PORT,
    CLUSTER_LABEL,
    INGESTION_LABEL,
    NAME_LABEL,
    owned_manifest,
)

JOB_FILE: Final = "job.yaml"
CONF_FILE: Final = "spark-defaults.conf"
EXECUTOR_FILE: Final = "executor.yaml"

FOLDER: Final = "/etc/tidelog"
"""Where the driver finds these files."""
COPY: Final = "/tmp/tidelog"
"""Where the driver copies them when it starts, so that later changes do not reach a run that has begun."""

DRIVER_PORT: Final = 7078
BLOCKS_PORT: Final = 7079

PART_LABEL: Final = "tidelog.io/part"
PART: Final = "spark"
"""The label of drivers and executors, which the chart's NetworkPolicies name."""

DRIVER_APP: Final = "tidelog-driver"
EXECUTOR_APP: Final = "tidelog-executor"

CONFIG_VOLUME: Final = "tidelog-config"
TMP_VOLUME: Final = "spark-local-dir-tmp"
"""Spark recognises the start of the name: executors put their own files there, and get no other volume."""

LOG_LEVEL: Final = "WARN"
"""Spark's own messages: at INFO they hide the lines of the job. `sparkConf` of an Ingestion may change it."""

USER: Final = 65532

CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def files_name(key: ObjectKey) -> str:
    return f"{key.name}-ingestion"


def labels_of(one: IngestionObject, app: str) -> dict[str, str]:
    """Returns the labels of an object of this Ingestion. The operator watches what carries the name of the
    Cluster; executors, which only their driver needs, carry the name of the Ingestion alone."""
    labels = {NAME_LABEL: app, INGESTION_LABEL: one.key.name, PART_LABEL: PART}
    return labels if app == EXECUTOR_APP else {**labels, CLUSTER_LABEL: one.cluster}


def files_map(one: IngestionObject, spec: IngestionSpec) -> Manifest:
    """Returns the ConfigMap."""
    data = {JOB_FILE: job_file(one, spec), CONF_FILE: _conf_file(one, spec)}
    if spec.executors.instances:
        data[EXECUTOR_FILE] = _text(executor_pod(one, spec))
    labels = labels_of(one, DRIVER_APP)
    return owned_manifest(one, "v1", "ConfigMap", files_name(one.key), {"data": data}, labels=labels)


def job_file(one: IngestionObject, spec: IngestionSpec) -> str:
    """Returns the job's configuration file."""
    servers = f"{one.cluster}:{CLIENT_PORT}"
    return _text({"servers": servers, **spec.job, "sparkConf": dict(spec.spark_conf)})


def pod_spec(spec: IngestionSpec) -> dict[str, Any]:
    """Returns what the pods of driver and executors have in common."""
    pods = spec.pods
    made: dict[str, Any] = {
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            # Spark opens many files on a volume; their owner changes only if the folder's is another one.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": TMP_VOLUME, "emptyDir": {}}, *(dict(each) for each in pods.volumes)],
    }
    if pods.image_pull_secrets:
        made["imagePullSecrets"] = [{"name": name} for name in pods.image_pull_secrets]
    if pods.node_selector:
        made["nodeSelector"] = dict(pods.node_selector)
    if pods.tolerations:
        made["tolerations"] = [dict(each) for each in pods.tolerations]
    if pods.priority_class:
        made["priorityClassName"] = pods.priority_class
    return made


def mounts(spec: IngestionSpec) -> list[dict[str, Any]]:
    return [{"name": TMP_VOLUME, "mountPath": "/tmp"}, *(dict(one) for one in spec.pods.volume_mounts)]


def executor_pod(one: IngestionObject, spec: IngestionSpec) -> dict[str, Any]:
    """Returns the template of executor pods. Spark adds image, resources, name, and the driver as owner."""
    container = {
        "name": "executor",
        "env": [dict(each) for each in spec.pods.env],
        "volumeMounts": mounts(spec),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels_of(one, EXECUTOR_APP)},
        "spec": {**pod_spec(spec), "automountServiceAccountToken": False, "containers": [container]},
    }


def _conf_file(one: IngestionObject, spec: IngestionSpec) -> str:
    conf = {
        "spark.app.name": one.key.name,
        "spark.driver.memory": f"{spec.driver.memory.heap_mib}m",
        "spark.log.level": LOG_LEVEL,
    }
    # Options of the driver's Java process have an effect only here: the job begins inside that process.
    conf |= spec.spark_conf
    conf |= _executors(one, spec) if spec.executors.instances else _local(spec)
    return "".join(f"{_name(name)} {_value(value)}\n" for name, value in sorted(conf.items()))


def _name(text: str) -> str:
    """Returns the name of a setting as Java's files of properties have it."""
    return re.sub("[ :=]", r"\\\g<0>", _value(text))


def _value(text: str) -> str:
    """Returns the value of a setting as Java's files of properties have it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _local(spec: IngestionSpec) -> dict[str, str]:
    return {"spark.master": f"local[{spec.executors.cores}]"}


def _executors(one: IngestionObject, spec: IngestionSpec) -> dict[str, str]:
    executors, pods = spec.executors, spec.pods
    conf = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        # Driver and executors of this run share a secret, which Spark makes. No other pod can join.
        "spark.authenticate": "true",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{executors.memory.heap_mib}m",
        "spark.executor.memoryOverhead": f"{executors.memory.overhead_mib}m",
        "spark.kubernetes.namespace": one.key.namespace,
        "spark.kubernetes.container.image": pods.image,
        "spark.kubernetes.executor.request.cores": executors.cpu,
        "spark.kubernetes.executor.podTemplateFile": f"{COPY}/{EXECUTOR_FILE}",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        # Without these the driver would need rights for ConfigMaps, Services and claims.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }
    if pods.image_pull_policy:
        conf["spark.kubernetes.container.image.pullPolicy"] = pods.image_pull_policy
    return conf


def _text(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
