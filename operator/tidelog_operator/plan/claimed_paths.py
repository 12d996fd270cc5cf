"""Which Ingestions use the same checkpoint or the same sink: only the oldest of them may run.

A path on a volume is identified by the volume and the path inside it, because two Ingestions may mount one
volume at different paths, or two volumes at one path. A path in an object store is identified by its URI and
the endpoint of the store.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog_operator.ingestions import IngestionObject, IngestionSpec
from tidelog_operator.model import Manifest


class Conflict(NamedTuple):
    reason: str
    """Of a condition."""
    message: str


class _Claim(NamedTuple):
    what: str
    """The field of the spec."""
    reason: str
    path: str
    identity: tuple[str, ...]


def conflict_of(
    one: IngestionObject, spec: IngestionSpec, ingestions: Sequence[IngestionObject]
) -> Conflict | None:
    """Returns the conflict with an older Ingestion; None: there is none."""
    mine = {claim.identity: claim for claim in _claims(one, spec)}
    for other in sorted(ingestions, key=lambda each: each.age_rank):
        if other.uid == one.uid or other.spec is None or other.age_rank > one.age_rank:
            continue
        for theirs in _claims(other, other.spec):
            claim = mine.get(theirs.identity)
            if claim is not None and claim.reason == theirs.reason:
                return Conflict(claim.reason, _message(claim, one, other))
    return None


def _message(claim: _Claim, one: IngestionObject, other: IngestionObject) -> str:
    name = other.key.name if other.key.namespace == one.key.namespace else str(other.key)
    return (
        f"The older Ingestion {name} has the same {claim.what}, {claim.path}. With two drivers neither would "
        f"write each record once. Choose another {claim.what}, or delete one of the two Ingestions."
    )


def _claims(one: IngestionObject, spec: IngestionSpec) -> Iterator[_Claim]:
    path = spec.job["checkpoint"]
    yield _Claim("checkpoint", "CheckpointInUse", path, ("checkpoint", *_identity(one, spec, path)))
    parquet = spec.job["sink"].get("parquet")
    if parquet is not None:
        path = parquet["path"]
        yield _Claim("sink.parquet.path", "SinkInUse", path, ("sink", *_identity(one, spec, path)))


def _identity(one: IngestionObject, spec: IngestionSpec, path: str) -> tuple[str, ...]:
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
