"""Reads Jobs as runs of an Ingestion, and Jobs, CronJobs and pods as holders of its paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog_operator.ingestions import DriverPod, Run, read_time
from tidelog_operator.kubernetes.objects import Objects, key_of
from tidelog_operator.model import Manifest, ObjectKey
from tidelog_operator.plan.claimed_paths import Holder
from tidelog_operator.resources.naming import INGESTION_LABEL
from tidelog_operator.resources.path_claims import read_claims
from tidelog_operator.resources.runs import FAILURES_ANNOTATION, NUMBER_LABEL, RUN_ANNOTATION


def read_run(job: Manifest, pods: Sequence[DriverPod]) -> Run:
    """`pods`: drivers, also of other Jobs."""
    meta = job["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    ended = _ended(job)
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


def read_holders(objects: Objects) -> list[Holder]:
    """Returns all Jobs, CronJobs and pods whose driver runs or may run, of all Ingestions."""
    return [*_holders(objects), *_pods(objects)]


def _holders(objects: Objects) -> Iterator[Holder]:
    for one in objects.all_owned():
        name = (one["metadata"].get("labels") or {}).get(INGESTION_LABEL)
        if name is None or one["kind"] not in ("Job", "CronJob"):
            continue
        if one["kind"] == "CronJob":
            may_run, job = not one["spec"].get("suspend", False), one["spec"]["jobTemplate"]
        else:
            may_run, job = _ended(one) is None, one
        if may_run:
            meta, key = one["metadata"], key_of(one)
            owners = frozenset(each["uid"] for each in meta.get("ownerReferences", ()))
            paths = read_claims(job["spec"]["template"])
            of = ObjectKey(key.namespace, name)
            yield Holder(one["kind"], key, of, meta["creationTimestamp"], owners, paths)


def _pods(objects: Objects) -> Iterator[Holder]:
    """A pod may run longer than its Job exists: garbage collection does not wait for it."""
    for key, pod in objects.all_drivers():
        if not pod.ended:
            of = ObjectKey(key.namespace, pod.ingestion)
            yield Holder("Pod", key, of, pod.created, pod.owners, pod.paths)


def _ended(job: Manifest) -> Manifest | None:
    """Returns the condition that says that the Job has ended."""
    conditions: Sequence[Manifest] = (job.get("status") or {}).get("conditions") or ()
    ended = (one for one in conditions if one["type"] in ("Complete", "Failed") and one["status"] == "True")
    return next(ended, None)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
