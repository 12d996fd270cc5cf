"""Streams and Clusters as specs for a real API server, each with a name of its own."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from support.kube.control_plane import ControlPlane

NAMES = (f"one-{number}" for number in itertools.count())
Spec = dict[str, Any]


def stream(**spec: Any) -> Spec:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Stream",
        "metadata": {"name": next(NAMES), "namespace": "default"},
        "spec": {"cluster": "main", **spec},
    }


def cluster(**spec: Any) -> Spec:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": next(NAMES), "namespace": "default"},
        "spec": {"image": "tidelog:1", "storage": {"size": "10Gi"}, **spec},
    }


def changed(plane: ControlPlane, before: Spec, after: Spec) -> Spec:
    """Creates `before`, and returns it with the spec of `after`."""
    assert not plane.created(before)
    now = copy.deepcopy(before)
    now["spec"] = after["spec"]
    return now


NODES: Spec = {"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": 30000}


BALANCED: Spec = {
    "name": "cloud",
    "port": 9320,
    "type": "LoadBalancer",
    "host": "broker-{broker}.example.com",
}


def without(one: Spec, *names: str, **more: Any) -> Spec:
    return {name: value for name, value in one.items() if name not in names} | more


def ingestion(name: str = "", **spec: Any) -> Spec:
    """A scheduled Ingestion unless `spec` says otherwise; its paths are its own."""
    name = name or next(NAMES)
    when = {} if "continuous" in spec else {"schedule": "@daily"}
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Ingestion",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "cluster": "main",
            "image": "tidelog/spark:1",
            "source": {"streams": ["orders"]},
            "sink": {"parquet": {"path": f"/lake/{name}"}},
            "checkpoint": f"/lake/_checkpoints/{name}",
            "volumes": [{"name": "lake", "persistentVolumeClaim": {"claimName": "lake"}}],
            "volumeMounts": [{"name": "lake", "mountPath": "/lake"}],
            **when,
            **spec,
        },
    }
