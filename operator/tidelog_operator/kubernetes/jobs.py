"""Reads Jobs as runs of an Ingestion."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_operator.ingestions import DriverPod, Run, read_time
from tidelog_operator.model import Manifest
from tidelog_operator.resources.runs import FAILURES_ANNOTATION, NUMBER_LABEL, RUN_ANNOTATION


def read_run(job: Manifest, pods: Sequence[DriverPod]) -> Run:
    """`pods`: drivers, also of other Jobs."""
    meta, status = job["metadata"], job.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    ended = next(
        (
            one
            for one in status.get("conditions") or ()
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        ),
        None,
    )
    return Run(
        name=meta["name"],
        uid=meta["uid"],
        scheduled=any(one["kind"] == "CronJob" for one in meta.get("ownerReferences", ())),
        number=_number(labels.get(NUMBER_LABEL, "")),
        failures=_number(annotations.get(FAILURES_ANNOTATION, "")),
        manifest=annotations.get(RUN_ANNOTATION, ""),
        created=read_time(meta["creationTimestamp"]),
        finished=None if ended is None else read_time(ended["lastTransitionTime"]),
        succeeded=ended is not None and ended["type"] == "Complete",
        why=ended.get("message", "") if ended is not None and ended["type"] == "Failed" else "",
        deleting="deletionTimestamp" in meta,
        pods=sorted((one for one in pods if one.job == meta["name"]), key=lambda one: one.created),
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
