"""The paths that no two drivers may write to: the checkpoint and the Parquet folder of an Ingestion.

A path on a volume is identified by the volume and the path inside it, because two Ingestions may mount one
volume at different paths, or two volumes at one path. A path in an object store is identified by its URI and
the endpoint of the store. The pod of each driver carries these identities: it may run when its Ingestion has
another spec or is gone.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from tidelog_operator.ingestions import IngestionObject, IngestionSpec
from tidelog_operator.model import Manifest

CLAIMS_ANNOTATION: Final = "tidelog.io/paths"
"""The annotation with the identities of the paths, on the pod of a driver and so in the template of its
Job."""

Identity: TypeAlias = tuple[str, ...]
"""Equal for the same place, whatever the Ingestions call it."""


class PathClaim(NamedTuple):
    what: str
    """The field of the spec."""
    reason: str
    """Of the condition of an Ingestion that must not use the path."""
    path: str
    identity: Identity


def path_claims(one: IngestionObject, spec: IngestionSpec) -> Iterator[PathClaim]:
    path = spec.job["checkpoint"]
    yield PathClaim("checkpoint", "CheckpointInUse", path, ("checkpoint", *_identity(one, spec, path)))
    parquet = spec.job["sink"].get("parquet")
    if parquet is not None:
        path = parquet["path"]
        yield PathClaim("sink.parquet.path", "SinkInUse", path, ("sink", *_identity(one, spec, path)))


def claims_text(one: IngestionObject, spec: IngestionSpec) -> str:
    """Returns the value of the annotation."""
    return json.dumps([claim.identity for claim in path_claims(one, spec)])


def read_claims(pod: Manifest) -> frozenset[Identity]:
    """Returns the identities on a pod or on the template of a pod; none if they cannot be read."""
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(CLAIMS_ANNOTATION, "[]")
    try:
        return frozenset(tuple(str(part) for part in one) for one in json.loads(text))
    except (ValueError, TypeError):
        return frozenset()


def _identity(one: IngestionObject, spec: IngestionSpec, path: str) -> Identity:
    scheme, found, rest = path.partition("://")
    if found:
        endpoint = (spec.job.get("objectStore") or {}).get("endpoint", "")
        # s3 and s3a name the same objects.
        return (endpoint, "s3" if scheme == "s3a" else scheme, posixpath.normpath(rest))
    path = posixpath.normpath(path)
    mount = max(
        (each for each in spec.pods.volume_mounts if _is_below(path, each["mountPath"])),
        key=lambda each: len(each["mountPath"]),
        default=None,
    )
    if mount is None:
        # The schema demands a mount for every path. This path belongs to this Ingestion alone.
        return ("", one.uid, path)
    inside = posixpath.join(mount.get("subPath", ""), posixpath.relpath(path, mount["mountPath"]))
    return (one.key.namespace, _source(spec, mount["name"]), posixpath.normpath(inside))


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def _source(spec: IngestionSpec, name: str) -> str:
    """Returns what a volume is, without its name in the pod."""
    volume: Manifest = next((each for each in spec.pods.volumes if each["name"] == name), {"name": name})
    found = {key: value for key, value in volume.items() if key != "name"}
    return json.dumps(found or {"name": name}, sort_keys=True)
