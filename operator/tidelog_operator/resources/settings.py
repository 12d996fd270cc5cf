"""The brokers' settings file, in a ConfigMap."""

from __future__ import annotations

from typing import Final

import yaml

from tidelog_operator.model import ClusterObject, Manifest
from tidelog_operator.resources.naming import digest, manifest, settings_name

FILE: Final = "broker.yaml"
FOLDER: Final = "/etc/tidelog"
DATA_MOUNT: Final = "/data"
DATA_FOLDER: Final = f"{DATA_MOUNT}/log"
"""A folder below the mount point: file systems put a folder of their own beside it."""

FORMATION_FOLDER: Final = "/etc/tidelog-formation"
FORMATION_FILE: Final = "formation.json"


def settings_map(cluster: ClusterObject) -> Manifest:
    return manifest(cluster, "v1", "ConfigMap", settings_name(cluster), {"data": {FILE: _text(cluster)}})


def settings_digest(cluster: ClusterObject) -> str:
    """Returns a hash for an annotation of the pods: brokers read settings at start, so changed settings must
    restart them."""
    return digest(_text(cluster))


def _text(cluster: ClusterObject) -> str:
    settings = {
        "data_dir": DATA_FOLDER,
        "formation": f"{FORMATION_FOLDER}/{FORMATION_FILE}",
        "log_json": True,
        **cluster.spec.broker_settings,
    }
    return yaml.safe_dump(settings, sort_keys=True)
