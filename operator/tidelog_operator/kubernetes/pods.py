"""Reads the pods of drivers, and why a pod does not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog_operator.ingestions import DriverPod, Report, read_report
from tidelog_operator.model import Manifest
from tidelog_operator.resources.naming import INGESTION_LABEL, JOB_LABEL
from tidelog_operator.resources.path_claims import read_claims
from tidelog_operator.resources.runs import CONTAINER

OUT_OF_MEMORY: Final = "OOMKilled"
OUT_OF_MEMORY_WORDS: Final = (
    "OOMKilled: the driver needed more memory than driver.memory and driver.memoryOverhead allow."
)

WAITING_REASON_CHARACTERS_MAX: Final = 300
"""Characters of the reason why a pod does not run."""

STARTING: Final = ("ContainerCreating", "PodInitializing")
"""Waiting reasons of a container that starts normally."""

ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod whose containers have ended."""


def read_driver(manifest: Manifest) -> DriverPod:
    meta, status = manifest["metadata"], manifest.get("status") or {}
    statuses: Sequence[Manifest] = status.get("containerStatuses") or ()
    state = next((one.get("state") or {} for one in statuses if one["name"] == CONTAINER), {})
    ended = state.get("terminated")
    words = read_report(ended.get("message") or "") if ended else Report()
    if ended and ended.get("reason") == OUT_OF_MEMORY:
        # The driver could say nothing, so the message is the end of its log.
        words = Report(message=OUT_OF_MEMORY_WORDS)
    elif ended and not words.message and ended.get("exitCode"):
        # Kubernetes knows some causes itself.
        words = Report(words.rows, words.lag, words.offsets, words.at, ended.get("reason") or "")
    if not ended and status.get("phase") == "Failed":
        # The pod was evicted, or its node was lost: no container reported its end.
        words = Report(message=_joined(status))
    return DriverPod(
        name=meta["name"],
        uid=meta["uid"],
        job=(meta.get("labels") or {}).get(JOB_LABEL, ""),
        ip=status.get("podIP", ""),
        created=meta["creationTimestamp"],
        running="running" in state and "deletionTimestamp" not in meta,
        exit_code=ended.get("exitCode") if ended else None,
        last_words=words,
        waiting_reason=waiting_reason_of(status),
        ended=bool(ended) or status.get("phase") in ENDED,
        ingestion=(meta.get("labels") or {}).get(INGESTION_LABEL, ""),
        owners=frozenset(one["uid"] for one in meta.get("ownerReferences", ())),
        paths=read_claims(manifest),
    )


def waiting_reason_of(status: Manifest) -> str:
    """Returns why a pod does not run, in the words of Kubernetes; empty: it runs or starts normally."""
    for one in status.get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return _joined(one)
    # Init containers, which an admission webhook may have added, run first.
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = container["state"].get("waiting")
        if waiting and waiting.get("reason") not in STARTING:
            return _joined(waiting)
    return ""


def _joined(one: Manifest) -> str:
    """Joins reason and message of a pod condition or a container state."""
    words = ": ".join(one[name] for name in ("reason", "message") if one.get(name))
    return (
        words
        if len(words) <= WAITING_REASON_CHARACTERS_MAX
        else f"{words[: WAITING_REASON_CHARACTERS_MAX - 1]}…"
    )
