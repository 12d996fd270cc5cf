"""Ingestions as the API server returns them, with its defaults."""

from __future__ import annotations

from typing import Any

from support.kube.specs import ingestion

DEFAULTS: dict[str, Any] = {
    "driver": {"cpu": 1, "memory": "1Gi"},
    "executor": {"instances": 1, "cores": 1, "memory": "1Gi"},
    "serviceAccountName": "tidelog-spark",
    "suspend": False,
    "failOnDataLoss": True,
    "successfulRunsHistoryLimit": 3,
    "failedRunsHistoryLimit": 3,
}


def ingestion_manifest(name: str = "orders", second: int = 0, **spec: Any) -> dict[str, Any]:
    """`second`: of its creation."""
    made = ingestion(name, **spec)
    meta = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-of-{name}",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": f"2026-01-01T00:00:{second:02}Z",
    }
    return {**made, "metadata": meta, "spec": {**DEFAULTS, **made["spec"]}}
