"""Plans one Ingestion: compares its spec with its ConfigMap, its CronJob and its runs.

A spec that cannot be fulfilled lets no run begin. A run that has begun continues: its driver knows better
than the operator whether it can. A continuous run is stopped only if the spec says so (`suspend`, another
manifest). At most one driver of an Ingestion runs: the next Job is created only when no Job is active.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from typing import Final

from tidelog_operator.actions import ApplyObject, CreateObject, DeleteObject
from tidelog_operator.ingestions import (
    EXIT_CONFIGURATION,
    IngestionObject,
    IngestionSpec,
    Restart,
    Run,
    Timetable,
    read_time,
)
from tidelog_operator.model import Manifest, ObjectKey
from tidelog_operator.plan.claimed_paths import Holder, conflict_of, waits_for
from tidelog_operator.plan.cron import Schedule, ScheduleError, read_schedule, read_zone
from tidelog_operator.plan.owned import Owned
from tidelog_operator.resources.runs import continuous_hash, continuous_job, cron_job, scheduled_hash
from tidelog_operator.resources.spark_files import files_map

IngestionAction = ApplyObject | CreateObject | DeleteObject

LATE_SECONDS: Final = 120.0
"""A scheduled run that has not begun this long after it was due is reported."""

MANAGER: Final = "tidelog-operator"
"""The operator as a manager of fields: the API server records when it last changed the CronJob."""

DOUBLINGS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """What prevents runs: the reason of a condition, and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an Ingestion needs besides its own objects."""

    ingestions: Sequence[IngestionObject] = ()
    """All Ingestions that the operator knows, of all namespaces."""
    streams: frozenset[str] | None = None
    """Names of the streams on the brokers; None: no broker answers."""
    has_cluster: bool = True
    holders: Sequence[Holder] = ()
    """Drivers that run or may run, of all Ingestions, also of those that are gone."""


@dataclass(frozen=True, slots=True)
class IngestionDecision:
    """The actions for one Ingestion, in this order, and what its status needs."""

    object: IngestionObject
    actions: tuple[IngestionAction, ...] = ()
    problem: Problem | None = None
    runs: Sequence[Run] = ()
    """The oldest first."""
    next_run: datetime | None = None
    """When the next run is due; None: there is none, or it is due now."""
    late_since: datetime | None = None
    """When a run was due that has not begun; None: none is late."""
    blocked: bool = False
    """A continuous run that ended because of its configuration is not started again before the spec changes,
    or before it is suspended and resumed."""
    wake_at: datetime | None = None
    """When the plan may change without any event."""


@dataclass(frozen=True, slots=True)
class ObservedIngestion:
    """The objects of one Ingestion."""

    owned: Owned
    runs: Sequence[Run] = field(default_factory=tuple)

    def cron_job(self, one: IngestionObject) -> Manifest | None:
        return self.owned.objects.get(("CronJob", one.key.name))


def plan_ingestion(
    one: IngestionObject, observed: ObservedIngestion, around: Surroundings, now: datetime
) -> IngestionDecision:
    runs = sorted(observed.runs, key=lambda run: (run.created, run.name))
    decision = IngestionDecision(one, runs=runs)
    if one.deleting:
        return decision
    spec = one.spec
    if spec is None:
        return replace(
            decision, actions=_suspended(one, observed), problem=Problem("Invalid", one.unreadable)
        )
    problem = _problem(one, spec, around, now) or _other_driver(one, spec, observed, around)
    decision = replace(decision, problem=problem)
    files = files_map(one, spec)
    # A problem keeps the files as they are too: a run that has begun may start another driver with them.
    actions: tuple[IngestionAction, ...] = ()
    if problem is None and not observed.owned.has(files):
        actions = (ApplyObject(files),)
    decision = replace(decision, actions=actions)
    if spec.timetable is not None:
        return _scheduled(decision, spec, spec.timetable, observed, now)
    assert isinstance(spec.when, Restart)
    return _continuous(decision, spec, spec.when, observed, now)


# --- by a schedule


def _scheduled(
    decision: IngestionDecision,
    spec: IngestionSpec,
    timetable: Timetable,
    observed: ObservedIngestion,
    now: datetime,
) -> IngestionDecision:
    one, there = decision.object, observed.cron_job(decision.object)
    others = [run for run in decision.runs if not run.scheduled]
    ended = tuple(_deleted("Job", one, run.name, run.uid) for run in others if not run.deleting)
    if decision.problem is not None or others:
        # Drivers of the time when it was continuous end first.
        return replace(decision, actions=(*decision.actions, *ended, *_suspended(one, observed)))
    wanted = cron_job(one, spec, timetable, suspended=spec.suspend)
    actions = decision.actions
    if not observed.owned.has(wanted):
        actions = (*actions, ApplyObject(wanted))
    stuck = _stuck(decision.runs, scheduled_hash(one, spec, timetable))
    actions = (*actions, *(_deleted("Job", one, run.name, run.uid) for run in stuck))
    decision = replace(decision, actions=actions)
    if spec.suspend:
        return decision
    schedule, zone = read_schedule(timetable.schedule), read_zone(timetable.time_zone)
    late = _late(there, schedule, zone, timetable, decision.runs, now)
    due = schedule.after(now, zone)
    wake_at = min((each for each in (due, late) if each is not None and each > now), default=None)
    if late is not None and late <= now:
        decision = replace(decision, late_since=late - timedelta(seconds=LATE_SECONDS))
    return replace(decision, next_run=due, wake_at=wake_at)


def _stuck(runs: Iterable[Run], wanted: str) -> list[Run]:
    """Returns runs of another spec whose driver never started, for example because its image does not exist.
    Such a run would wait without an end, and no other run would begin."""
    return [
        run
        for run in runs
        if run.active and not run.deleting and run.manifest not in ("", wanted) and not run.started
    ]


def _late(
    there: Manifest | None,
    schedule: Schedule,
    zone: tzinfo,
    timetable: Timetable,
    runs: Iterable[Run],
    now: datetime,
) -> datetime | None:
    """Returns when the next run counts as late; None: none is expected. Runs are left out, rightly, while
    another one is active, and after their starting deadline."""
    if there is None or (there["spec"] or {}).get("suspend") or any(run.active for run in runs):
        return None
    status = there.get("status") or {}
    # No run is expected from a time before the last change of the CronJob, or before the end of the last run.
    meta = there["metadata"]
    since = [read_time(meta["creationTimestamp"])]
    since += [
        read_time(one["time"])
        for one in meta.get("managedFields", ())
        if one.get("manager") == MANAGER and "time" in one
    ]
    since += [read_time(status["lastScheduleTime"])] if "lastScheduleTime" in status else []
    since += [run.finished for run in runs if run.finished is not None]
    if timetable.starting_deadline_s is not None:
        since.append(now - timedelta(seconds=timetable.starting_deadline_s))
    due = schedule.after(max(since), zone)
    return None if due is None else due + timedelta(seconds=LATE_SECONDS)


def _suspended(one: IngestionObject, observed: ObservedIngestion) -> tuple[IngestionAction, ...]:
    """Suspends the CronJob that exists, whatever it says otherwise."""
    there = observed.cron_job(one)
    if there is None or there["spec"].get("suspend"):
        return ()
    meta = there["metadata"]
    kept = {name: meta[name] for name in ("name", "namespace", "labels", "annotations", "ownerReferences")}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": kept,
        "spec": {**there["spec"], "suspend": True},
    }
    return (ApplyObject(manifest, meta["resourceVersion"]),)


# --- without an end


def _continuous(
    decision: IngestionDecision,
    spec: IngestionSpec,
    restart: Restart,
    observed: ObservedIngestion,
    now: datetime,
) -> IngestionDecision:
    one, there = decision.object, observed.cron_job(decision.object)
    if there is not None:
        # Its runs end with it. Until they have, no other driver may begin.
        gone = () if "deletionTimestamp" in there["metadata"] else (_of(there, one),)
        return replace(decision, actions=(*decision.actions, *gone))
    wanted = continuous_hash(one, spec)
    active = [run for run in decision.runs if run.active]
    valid = decision.problem is None
    stopped = [
        run
        for run in active
        if not run.deleting and (spec.suspend or run.scheduled or (valid and run.manifest != wanted))
    ]
    deleted = {
        run.uid: run for run in (*stopped, *_old(decision.runs, spec), *_refused(one, spec, decision.runs))
    }
    actions = (*decision.actions, *(_deleted("Job", one, run.name, run.uid) for run in deleted.values()))
    decision = replace(decision, actions=actions)
    if active or spec.suspend or not valid:
        return decision
    last = max((run for run in decision.runs if not run.scheduled), key=lambda run: run.number, default=None)
    if last is None:
        return replace(decision, actions=(*actions, CreateObject(continuous_job(one, spec, 1, 0))))
    failures = failures_after(last, restart)
    if last.manifest == wanted:
        if last.exit_code == EXIT_CONFIGURATION:
            return replace(decision, blocked=True)
        due = restart_time(last, failures, restart)
        if due > now:
            return replace(decision, next_run=due, wake_at=due)
    else:
        failures = 0
    begin = CreateObject(continuous_job(one, spec, last.number + 1, failures))
    return replace(decision, actions=(*actions, begin))


def failures_after(last: Run, restart: Restart) -> int:
    """Returns the number of failures in a row after this run ended. A run that was long enough ends the
    row: the next failure is the first one again."""
    assert last.finished is not None
    ran = last.finished - last.created
    return 1 if ran >= timedelta(milliseconds=restart.reset_after_ms) else last.failures + 1


def restart_time(last: Run, failures: int, restart: Restart) -> datetime:
    """Returns when the next driver begins: the delay doubles with each failure in a row."""
    assert last.finished is not None
    delay_ms = min(restart.delay_ms_max, restart.delay_ms * 2 ** min(failures - 1, DOUBLINGS_MAX))
    return last.finished + timedelta(milliseconds=delay_ms)


def _old(runs: Sequence[Run], spec: IngestionSpec) -> list[Run]:
    """Returns finished runs beyond the history limits. The last one stays: the next one follows from it."""
    ended = [run for run in runs if not run.active]
    kept = {run.uid for run in ended[-1:]}
    for succeeded, limit in ((True, spec.succeeded_kept), (False, spec.failed_kept)):
        kept |= {run.uid for run in [one for one in ended if one.succeeded is succeeded][-limit:]}
    return [run for run in ended if run.uid not in kept]


def _refused(one: IngestionObject, spec: IngestionSpec, runs: Sequence[Run]) -> list[Run]:
    """Returns the runs that ended because of their configuration, while `suspend` is true. Without them a
    driver begins when `suspend` is false again: the cause may have been outside the spec."""
    ended = [run for run in runs if not run.scheduled]
    if not spec.suspend or not ended or ended[-1].active or ended[-1].exit_code != EXIT_CONFIGURATION:
        return []
    if not _is_recorded(one, ended[-1]):
        # The status gets its facts first; this change of the status leads to the next plan.
        return []
    return [run for run in ended if not run.active and run.exit_code == EXIT_CONFIGURATION]


def _is_recorded(one: IngestionObject, run: Run) -> bool:
    """Whether the status has the end of this run."""
    failure = one.status.get("lastFailure") or {}
    return (
        failure.get("name") == run.name
        and "finishedAt" in failure
        and read_time(failure["finishedAt"]) == run.finished
    )


# --- what prevents runs


def _problem(
    one: IngestionObject, spec: IngestionSpec, around: Surroundings, now: datetime
) -> Problem | None:
    if not around.has_cluster:
        message = f"The Cluster {one.cluster} does not exist in this namespace."
        return Problem("ClusterNotFound", message)
    if spec.timetable is not None:
        wrong = _wrong_schedule(spec.timetable, now)
        if wrong is not None:
            return wrong
    conflict = conflict_of(one, spec, around.ingestions)
    if conflict is not None:
        return Problem(conflict.reason, conflict.message)
    if around.streams is not None:
        missing = [name for name in spec.streams if name not in around.streams]
        if missing:
            names = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
            return Problem(
                "StreamNotFound",
                f"The Cluster {one.cluster} has no stream {names}. Create a Stream, or correct "
                "source.streams.",
            )
    return None


def _other_driver(
    one: IngestionObject, spec: IngestionSpec, observed: ObservedIngestion, around: Surroundings
) -> Problem | None:
    if spec.suspend:
        return None
    there = observed.cron_job(one)
    mine = {one.uid, *(run.uid for run in observed.runs)} | ({there["metadata"]["uid"]} if there else set())
    why = waits_for(one, spec, frozenset(mine), around.holders)
    return Problem("WaitingForDriver", why) if why else None


def _wrong_schedule(timetable: Timetable, now: datetime) -> Problem | None:
    try:
        zone = read_zone(timetable.time_zone)
    except ScheduleError as error:
        return Problem("UnknownTimeZone", f"timeZone: {error}.")
    try:
        schedule = read_schedule(timetable.schedule)
    except ScheduleError as error:
        return Problem("InvalidSchedule", f"schedule: {error}.")
    if schedule.after(now, zone) is None:
        return Problem("NeverDue", f"The schedule {timetable.schedule!r} never comes: there is no such date.")
    return None


def _deleted(kind: str, one: IngestionObject, name: str, uid: str) -> DeleteObject:
    return DeleteObject(kind, ObjectKey(one.key.namespace, name), uid)


def _of(there: Manifest, one: IngestionObject) -> DeleteObject:
    return _deleted("CronJob", one, there["metadata"]["name"], there["metadata"]["uid"])
