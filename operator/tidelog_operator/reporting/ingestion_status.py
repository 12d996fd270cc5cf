"""The status of an Ingestion: from its runs, its drivers' reports, and the decision of the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from tidelog_operator.ingestions import EXIT_CONFIGURATION, DriverPod, Report, Run, read_time
from tidelog_operator.model import Manifest
from tidelog_operator.plan.ingestions import IngestionDecision
from tidelog_operator.reporting.conditions import Status, condition, sentence, timed
from tidelog_operator.resources.naming import INGESTION_LABEL, NAME_LABEL
from tidelog_operator.resources.spark_files import EXECUTOR_APP

TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
OFFSETS_SHOWN_MAX: Final = 500
"""Partitions whose offsets a status has."""

KEPT: Final = ("lastRun", "lastSuccess", "lastFailure", "rows", "lag", "offsets", "reportedAt", "attempts")
"""Facts that stay in the status when nothing newer is known."""

EXECUTORS: Final = f"{NAME_LABEL}={EXECUTOR_APP}"

IDLE_SECONDS: Final = 600.0
"""After this time without a batch, or without an executor, the conditions of a run say so."""


def ingestion_status(
    decision: IngestionDecision, before: Manifest, report: Report, *, error: str, now: str
) -> Status:
    """Returns the new status; `before` is the previous one. `report`: of the driver that runs, or of the last
    one. `error`: of an action, which is tried again; empty: none. `now`: RFC 3339."""
    one, last = decision.object, decision.runs[-1] if decision.runs else None
    valid, running = _valid(decision, error), _running(decision, last, report, now)
    ready = _ready(decision, valid, running, last)
    status: Status = {
        "observedGeneration": one.generation,
        "conditions": [timed(each, before, one.generation, now) for each in (ready, valid, running)],
        **{name: before[name] for name in KEPT if name in before},
    }
    if _leaves_out_offsets(report):
        # Those of an earlier report would stand beside rows and lag of this one.
        status.pop("offsets", None)
    if decision.next_run is not None:
        status["nextRun"] = decision.next_run.strftime(TIME)
    if last is not None and not _is_known(last, before.get("lastRun") or {}):
        status |= _facts(decision, last, report)
    succeeded = [run.finished for run in decision.runs if run.succeeded and run.finished is not None]
    if succeeded:
        # Times in this form are ordered as texts.
        status["lastSuccess"] = max(status.get("lastSuccess", ""), max(succeeded).strftime(TIME))
    failed = next(
        (run for run in reversed(decision.runs) if run.finished is not None and not run.succeeded), None
    )
    if failed is not None and not _is_known(failed, before.get("lastFailure") or {}):
        status["lastFailure"] = _end_of(failed)
    return status


def _facts(decision: IngestionDecision, last: Run, report: Report) -> Status:
    spec = decision.object.spec
    continuous = spec is not None and spec.timetable is None
    facts: Status = {"attempts": last.failures + 1 if continuous else max(1, len(last.pods))}
    run: Status = {"name": last.name, "startedAt": last.created.strftime(TIME), "result": "Running"}
    if last.active:
        facts["active"] = last.name
    elif last.finished is not None:
        run["result"] = "Succeeded" if last.succeeded else "Failed"
    facts["lastRun"] = run | _end_of(last)
    known = {"rows": report.rows, "lag": report.lag, "offsets": _shown(report)}
    facts |= {name: value for name, value in known.items() if value is not None}
    if report.at:
        facts["reportedAt"] = report.at
    return facts


def _is_known(run: Run, known: Status) -> bool:
    """Whether `known`, which the status has, is the end of a later run, or of this one before its Job was
    deleted: its pod, which knew more, may be gone already."""
    if run.finished is None or "finishedAt" not in known:
        return False
    ended = run.finished.strftime(TIME)
    return bool(known["finishedAt"] > ended or (run.deleting and known["finishedAt"] == ended))


def _end_of(run: Run) -> Status:
    """Returns how and why it ended, or how its last driver ended; a run that runs has no time of its end."""
    found: Status = {"name": run.name}
    if run.finished is not None and not run.deleting:
        found["finishedAt"] = run.finished.strftime(TIME)
    if run.exit_code is not None:
        found["exitCode"] = run.exit_code
    if not run.succeeded and _words(run):
        found["message"] = _words(run)
    return found


def _shown(report: Report) -> Status | None:
    if not report.offsets or _too_many(report.offsets):
        return None
    return {stream: dict(one) for stream, one in report.offsets.items()}


def _leaves_out_offsets(report: Report) -> bool:
    """Whether a driver has written, and this report does not say up to where. A report with no offset in it
    leaves nothing out: its run has written nothing, and the offsets of an earlier report still hold."""
    if report.offsets is None:
        return report.rows is not None or report.lag is not None or bool(report.at)
    return _too_many(report.offsets)


def _too_many(offsets: Mapping[str, Mapping[str, int]]) -> bool:
    return sum(len(one) for one in offsets.values()) > OFFSETS_SHOWN_MAX


def _words(run: Run) -> str:
    """Returns the last words of the run's last driver, or why the Job failed."""
    return (run.pods[-1].last_words.message if run.pods else "") or run.why


# --- conditions


def _valid(decision: IngestionDecision, error: str) -> Status:
    if decision.problem is not None:
        return condition("Valid", False, decision.problem.reason, decision.problem.message)
    if error:
        return condition("Valid", False, "CannotChange", error)
    return condition("Valid", True, "Valid", "The spec can be fulfilled.")


def _running(decision: IngestionDecision, last: Run | None, report: Report, now: str) -> Status:
    spec = decision.object.spec
    if last is not None and last.active and not (last.deleting and last.finished is not None):
        return _active(decision, last, report, now)
    if spec is not None and spec.suspend:
        return condition("Running", False, "Suspended", "No run begins while suspend is true.")
    if decision.problem is not None:
        return condition("Running", False, decision.problem.reason, "No run begins: see the condition Valid.")
    if decision.blocked and last is not None:
        why = sentence(_words(last) or "The driver gave no reason")
        message = (
            "The configuration is wrong, so no other driver begins. Correct the spec. If the cause was "
            f"outside the spec, set suspend to true and then to false. {why}"
        )
        return condition("Running", False, "BadConfiguration", message)
    if decision.next_run is None:
        return condition("Running", False, "Starting", "A run is about to begin.")
    when = decision.next_run.strftime(TIME)
    if spec is not None and spec.timetable is None:
        return condition(
            "Running", False, "Restarting", f"The driver has ended. Another one begins at {when}."
        )
    return condition("Running", False, "Idle", f"The next run begins at {when}.")


def _active(decision: IngestionDecision, run: Run, report: Report, now: str) -> Status:
    if run.deleting:
        return condition("Running", False, "Stopping", f"The driver of {run.name} is being stopped.")
    pod = run.pods[-1] if run.pods else None
    if pod is None:
        message = f"The Job {run.name} has no pod yet. `kubectl describe job {run.name}` says why."
        return condition("Running", False, "NotStarted", message)
    if pod.running:
        return _at_work(decision.object.key.name, pod, report, now)
    if pod.waiting_reason:
        message = sentence(f"The driver {pod.name} does not start: {pod.waiting_reason}")
        return condition("Running", False, "NotStarted", message)
    if pod.exit_code == 0:
        # Kubernetes sees a moment later that the Job is complete.
        return condition("Running", True, "Running", f"The driver {pod.name} has done its work.")
    if pod.exit_code is not None:
        return condition("Running", False, "Retrying", _failed(pod, "Another driver follows."))
    return condition("Running", False, "Starting", f"The driver {pod.name} is starting.")


def _at_work(ingestion: str, pod: DriverPod, report: Report, now: str) -> Status:
    """A run without an executor never ends, and Kubernetes begins no other run beside it. A run without a
    batch may lack records, or work on a large batch."""
    if report.no_executor_since and _is_long_ago(report.no_executor_since, now):
        since, labels = report.no_executor_since, f"{INGESTION_LABEL}={ingestion}"
        message = (
            f"The driver {pod.name} is running, but it has no executor since {since}, so it writes nothing, "
            f"and no other run begins. `kubectl get pods --selector {labels},{EXECUTORS}` shows executors, "
            "and `kubectl describe` of one that is Pending says why it does not start. If there is none, the "
            "driver's log says why: for example a quota."
        )
        return condition("Running", True, "NoExecutor", message)
    since = report.at or pod.created
    if not _is_long_ago(since, now):
        return condition("Running", True, "Running", f"The driver {pod.name} is running.")
    message = (
        f"The driver {pod.name} is running. It has finished no batch since {since}: there are no records to "
        "write, or a batch is large, or the driver hangs. Its log says more."
    )
    return condition("Running", True, "Running", message)


def _is_long_ago(time: str, now: str) -> bool:
    return (read_time(now) - read_time(time)).total_seconds() >= IDLE_SECONDS


def _failed(pod: DriverPod, then: str) -> str:
    words = sentence(pod.last_words.message or "It gave no reason")
    return f"The driver {pod.name} failed with exit code {pod.exit_code}. {words} {then}"


def _ready(decision: IngestionDecision, valid: Status, running: Status, last: Run | None) -> Status:
    """Ready says what a person should know first."""
    spec = decision.object.spec
    if valid["status"] == "False":
        return {**valid, "type": "Ready"}
    if running["reason"] in (
        "Suspended",
        "BadConfiguration",
        "NotStarted",
        "NoExecutor",
        "Retrying",
        "Stopping",
    ):
        return {**running, "type": "Ready", "status": "False"}
    if decision.late_since is not None:
        due = decision.late_since.strftime(TIME)
        message = (
            f"The run that was due at {due} has not begun. Kubernetes' controller of CronJobs begins runs. "
            "Check the events of the CronJob, and kube-controller-manager."
        )
        return condition("Ready", False, "Late", message)
    continuous = spec is not None and spec.timetable is None
    ended = next((run for run in reversed(decision.runs) if not run.active), None)
    if ended is not None and not ended.succeeded and not (continuous and running["status"] == "True"):
        words = sentence(_words(ended) or "The driver gave no reason")
        reason = "BadConfiguration" if ended.exit_code == EXIT_CONFIGURATION else "RunFailed"
        return condition("Ready", False, reason, f"The run {ended.name} failed. {words}")
    if continuous:
        return {**running, "type": "Ready"}
    if running["status"] == "True":
        return {**running, "type": "Ready"}
    message = running["message"] if last is not None else f"No run has begun yet. {running['message']}"
    return condition("Ready", True, "Scheduled", message)


def now_text(now: datetime) -> str:
    return now.strftime(TIME)
