"""The plan of one Ingestion: its CronJob, its continuous runs, and what prevents them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.kube.ingestions import ingestion_manifest
from tidelog_operator import actions as do
from tidelog_operator.ingestions import DriverPod, IngestionObject, Report, Run, read_ingestion
from tidelog_operator.model import ObjectKey
from tidelog_operator.plan.claimed_paths import Holder
from tidelog_operator.plan.ingestions import (
    IngestionDecision,
    ObservedIngestion,
    Surroundings,
    plan_ingestion,
)
from tidelog_operator.plan.owned import Owned
from tidelog_operator.reporting.ingestion_status import OFFSETS_SHOWN_MAX, ingestion_status
from tidelog_operator.resources.path_claims import path_claims
from tidelog_operator.resources.runs import continuous_hash, cron_job
from tidelog_operator.resources.spark_files import files_map

NOW = datetime(2026, 1, 10, 12, 0, tzinfo=UTC)
AROUND = Surroundings(streams=frozenset({"orders"}))


def one(**spec: Any) -> IngestionObject:
    return read_ingestion(ingestion_manifest(**spec))


def flow(**spec: Any) -> IngestionObject:
    return one(continuous=True, **spec)


def ended(
    ingestion: IngestionObject, number: int = 1, *, ran_s: float = 1, ago_s: float = 0, **facts: Any
) -> Run:
    """A continuous run that failed with exit code 75 unless `facts` say otherwise."""
    assert ingestion.spec is not None
    finished = NOW - timedelta(seconds=ago_s)
    code = facts.pop("code", 75)
    words = Report(message="No broker answers.")
    pod = DriverPod(
        "p", "u", "j", "", "2026-01-10T11:00:00Z", running=False, exit_code=code, last_words=words
    )
    run = Run(
        name=f"orders-{number}", uid=f"run-{number}", scheduled=False, number=number, failures=0,
        manifest=continuous_hash(ingestion, ingestion.spec), created=finished - timedelta(seconds=ran_s),
        finished=finished, succeeded=False, why="BackoffLimitExceeded", deleting=False, pods=(pod,),
    )  # fmt: skip
    return replace(run, **facts)


def planned(
    ingestion: IngestionObject, *runs: Run, holders: Sequence[Holder] = (), **there: Any
) -> IngestionDecision:
    """`there`: objects that exist besides the ConfigMap, by kind."""
    assert ingestion.spec is not None
    files = {**files_map(ingestion, ingestion.spec)}
    objects = {("ConfigMap", "orders-ingestion"): files}
    objects |= {(kind, "orders"): manifest for kind, manifest in there.items()}
    return plan_ingestion(
        ingestion, ObservedIngestion(Owned(objects), runs), replace(AROUND, holders=holders), NOW
    )


def holder(
    of: IngestionObject, kind: str = "Job", name: str = "orders-1", *, owner: str = "an earlier uid"
) -> Holder:
    """`of`: the Ingestion that it was made for, as it was then."""
    assert of.spec is not None
    paths = frozenset(claim.identity for claim in path_claims(of, of.spec))
    key = ObjectKey(of.key.namespace, name)
    return Holder(kind, key, of.key, "2026-01-01T00:00:00Z", frozenset({owner}), paths)


def begun(decision: IngestionDecision) -> list[str]:
    return [one.manifest["metadata"]["name"] for one in decision.actions if isinstance(one, do.CreateObject)]


def stopped(decision: IngestionDecision) -> list[str]:
    return [one.object.name for one in decision.actions if isinstance(one, do.DeleteObject)]


def existing(ingestion: IngestionObject, *, suspended: bool = False, **status: Any) -> Any:
    """The CronJob as the API server has it."""
    assert ingestion.spec is not None
    assert ingestion.spec.timetable is not None
    made = cron_job(ingestion, ingestion.spec, ingestion.spec.timetable, suspended=suspended)
    meta = {
        **made["metadata"],
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {**made, "metadata": meta, "status": status}


@pytest.mark.parametrize(
    ("executor", "driver_mib", "executor_mib"),
    [
        ({"instances": 1, "cores": 1}, 1024, 384 + 256),
        ({"instances": 2, "cores": 4}, 1024, 384 + 4 * 256),
        ({"instances": 0, "cores": 2}, 1024 + 2 * 256, 384 + 2 * 256),
    ],
)
def test_memory_beside_the_heap_is_enough_for_python(
    executor: dict[str, int], driver_mib: int, executor_mib: int
) -> None:
    spec = one(driver={"cpu": 1, "memory": "1Gi"}, executor={"memory": "1Gi", **executor}).spec

    assert spec is not None
    assert spec.driver.memory.overhead_mib == driver_mib
    assert spec.executors.memory.overhead_mib == executor_mib


def test_memory_beside_a_large_heap_is_a_share_of_it() -> None:
    spec = one(driver={"cpu": 1, "memory": "10Gi"}).spec

    assert spec is not None
    assert spec.driver.memory.overhead_mib == 4096


def test_settings_of_spark_reach_java_when_the_driver_starts() -> None:
    settings = {"spark.driver.extraJavaOptions": "-Da=b\\c -Dd=e:f", "spark.a b": "two\nlines"}
    ingestion = one(sparkConf={**settings, "spark.log.level": "INFO"})
    assert ingestion.spec is not None

    lines = files_map(ingestion, ingestion.spec)["data"]["spark-defaults.conf"].splitlines()

    # As java.util.Properties reads it.
    assert r"spark.driver.extraJavaOptions -Da=b\\c -Dd=e:f" in lines
    assert r"spark.a\ b two\nlines" in lines
    assert "spark.log.level INFO" in lines
    assert "spark.master k8s://https://kubernetes.default.svc" in lines


def test_a_settled_schedule_needs_nothing() -> None:
    daily = one(schedule="0 13 * * *")

    found = planned(daily, CronJob=existing(daily, lastScheduleTime="2026-01-09T13:00:00Z"))

    assert found.actions == ()
    assert found.next_run == datetime(2026, 1, 10, 13, tzinfo=UTC)
    assert found.wake_at == found.next_run
    assert found.late_since is None


def test_a_run_that_did_not_begin_is_late_two_minutes_after_it_was_due() -> None:
    daily = one(schedule="57 11 * * *")

    found = planned(daily, CronJob=existing(daily, lastScheduleTime="2026-01-09T11:57:00Z"))

    assert found.late_since == datetime(2026, 1, 10, 11, 57, tzinfo=UTC)
    status = ingestion_status(found, {}, Report(), error="", now="2026-01-10T12:00:00Z")
    assert (status["conditions"][0]["reason"], status["conditions"][0]["status"]) == ("Late", "False")


def test_a_schedule_that_changed_after_its_time_is_not_late() -> None:
    daily = one(schedule="57 11 * * *")
    there = existing(daily, lastScheduleTime="2026-01-09T11:57:00Z")
    there["metadata"]["managedFields"] = [{"manager": "tidelog-operator", "time": "2026-01-10T11:59:30Z"}]

    assert planned(daily, CronJob=there).late_since is None


def test_a_problem_suspends_the_cron_job_as_it_is() -> None:
    before, now = one(schedule="0 13 * * *"), one(schedule="0 13 31 2 *")

    found = planned(now, CronJob=existing(before))

    (action,) = found.actions
    assert isinstance(action, do.ApplyObject)
    assert (action.manifest["spec"]["suspend"], action.version) == (True, "7")
    assert action.manifest["spec"]["schedule"] == "0 13 * * *"
    assert found.problem is not None
    assert found.problem.reason == "NeverDue"


@pytest.mark.parametrize(
    ("facts", "gone"),
    [
        ({}, ["orders-1"]),
        ({"running": True}, []),
        ({"exit_code": 75}, []),
    ],
    ids=["never started", "running", "failed once"],
)
def test_a_run_of_an_old_spec_is_stopped_if_its_driver_never_started(
    facts: dict[str, Any], gone: list[str]
) -> None:
    before, now = one(schedule="0 13 * * *", image="absent:1"), one(schedule="0 13 * * *", image="spark:1")
    made = existing(before)["spec"]["jobTemplate"]["metadata"]["annotations"]["tidelog.io/run-manifest"]
    run = ended(before, scheduled=True, manifest=made, finished=None)
    pod = replace(run.pods[0], **{"exit_code": None, "waiting_reason": "ErrImagePull", **facts})
    run = replace(run, pods=(pod,))

    assert stopped(planned(before, run, CronJob=existing(before))) == []
    assert stopped(planned(now, run, CronJob=existing(now))) == gone


def test_the_first_continuous_run_begins_at_once() -> None:
    assert begun(planned(flow())) == ["orders-1"]


@pytest.mark.parametrize(("failures", "delay_s"), [(0, 10), (1, 20), (2, 40), (4, 160), (5, 300), (60, 300)])
def test_the_delay_doubles_with_each_failure_up_to_its_limit(failures: int, delay_s: int) -> None:
    early = planned(flow(), ended(flow(), 7, failures=failures, ago_s=delay_s - 1))
    due = planned(flow(), ended(flow(), 7, failures=failures, ago_s=delay_s))

    assert (begun(early), early.wake_at) == ([], NOW + timedelta(seconds=1))
    assert begun(due) == ["orders-8"]


def test_the_delay_is_short_again_after_a_driver_that_ran_well() -> None:
    found = planned(flow(), ended(flow(), 7, failures=60, ran_s=600, ago_s=10))

    (action,) = [one for one in found.actions if isinstance(one, do.CreateObject)]
    assert action.manifest["metadata"]["annotations"]["tidelog.io/failures"] == "1"


def test_no_driver_begins_while_another_one_may_run() -> None:
    active = ended(flow(), finished=None)
    stopping = replace(ended(flow()), deleting=True)

    assert planned(flow(), active).actions == ()
    assert planned(flow(), stopping).actions == ()


def test_a_changed_spec_stops_the_driver_and_then_begins_another_one() -> None:
    changed = flow(image="tidelog/spark:2")

    assert stopped(planned(changed, ended(flow(), finished=None))) == ["orders-1"]
    assert begun(planned(changed, ended(flow()))) == ["orders-2"]


def test_suspending_stops_a_continuous_driver() -> None:
    found = planned(flow(suspend=True), ended(flow(), finished=None))

    assert (stopped(found), begun(found)) == (["orders-1"], [])


def test_a_problem_does_not_stop_a_driver_that_runs() -> None:
    lost = flow(source={"streams": ["lost"]})

    assert planned(lost, ended(flow(), finished=None)).actions == ()


def test_a_configuration_error_is_not_tried_again() -> None:
    found = planned(flow(), ended(flow(), code=2, ago_s=3600))

    assert (found.blocked, found.actions) == (True, ())


def failed_with(*runs: Run) -> dict[str, Any]:
    """The status that the operator writes after these runs of a continuous Ingestion."""
    return ingestion_status(planned(flow(), *runs), {}, Report(), error="", now="2026-01-10T12:00:00Z")


def test_suspending_and_resuming_tries_again_after_a_configuration_error() -> None:
    older, run = ended(flow(), 6, ago_s=7200), ended(flow(), 7, code=2, ago_s=3600)
    status = failed_with(older, run)
    suspended = replace(flow(suspend=True), status=status)

    assert stopped(planned(flow(suspend=True), older, run)) == [], "the status has its facts first"
    assert stopped(planned(suspended, older, run)) == ["orders-7"]
    assert begun(planned(flow(), older)) == ["orders-7"]
    assert begun(planned(flow())) == ["orders-1"]


def test_every_refused_run_is_deleted_because_the_spec_may_return_to_its_own() -> None:
    runs = [ended(flow(), number, code=2, ago_s=100 - number) for number in (1, 2)]
    suspended = replace(flow(suspend=True), status=failed_with(*runs))

    assert stopped(planned(suspended, *runs)) == ["orders-1", "orders-2"]


@pytest.mark.parametrize("present", ["deleting", "gone"])
def test_the_status_keeps_the_facts_of_a_refused_run(present: str) -> None:
    older, run = ended(flow(), 6, ago_s=7200), ended(flow(), 7, code=2, ago_s=3600)
    before = failed_with(older, run)
    suspended = replace(flow(suspend=True), status=before)
    left = [older] if present == "gone" else [older, replace(run, deleting=True, pods=())]

    status = ingestion_status(
        planned(suspended, *left), before, Report(), error="", now="2026-01-10T12:00:00Z"
    )

    assert status["lastFailure"]["exitCode"] == 2
    assert [status[name] for name in ("lastRun", "lastFailure")] == [
        before[name] for name in ("lastRun", "lastFailure")
    ]
    assert "active" not in status
    assert status["conditions"][0]["reason"] == "Suspended"


def test_old_failed_runs_are_deleted_but_the_last_one_stays() -> None:
    runs = [ended(flow(), number, ago_s=100 - number, finished=NOW) for number in range(1, 6)]

    assert stopped(planned(flow(), *runs)) == ["orders-1", "orders-2"]


def test_a_schedule_that_becomes_continuous_waits_for_its_runs() -> None:
    daily = one()

    found = planned(flow(), CronJob=existing(daily))

    assert (stopped(found), begun(found)) == (["orders"], [])


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        ({"checkpoint": "/lake/_checkpoints/orders"}, "CheckpointInUse"),
        ({"sink": {"parquet": {"path": "/lake/orders"}}}, "SinkInUse"),
        (
            {
                "volumeMounts": [{"name": "lake", "mountPath": "/other", "subPath": "_checkpoints"}],
                "checkpoint": "/other/orders",
                "sink": {"parquet": {"path": "/other/rows"}},
            },
            "CheckpointInUse",
        ),
        (
            {
                "volumes": [{"name": "lake", "persistentVolumeClaim": {"claimName": "another"}}],
                "checkpoint": "/lake/_checkpoints/orders",
            },
            None,
        ),
    ],
)
def test_paths_are_shared_if_volume_and_path_inside_are_equal(theirs: Any, reason: str | None) -> None:
    mine = read_ingestion(ingestion_manifest(second=1))
    older = read_ingestion(ingestion_manifest("older", **theirs))

    found = plan_ingestion(
        mine, ObservedIngestion(Owned()), Surroundings([mine, older], frozenset({"orders"})), NOW
    )

    assert (found.problem.reason if found.problem else None) == reason


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Job", "The Job orders-7 of an earlier Ingestion orders has not ended."),
        ("Pod", "The pod orders-7 of an earlier Ingestion orders has not ended."),
    ],
)
@pytest.mark.parametrize("when", [{"continuous": True}, {"schedule": "0 13 * * *"}], ids=["flow", "daily"])
def test_a_deleted_ingestion_of_the_same_name_must_have_ended(
    kind: str, words: str, when: dict[str, Any]
) -> None:
    again = one(**when)

    found = planned(again, holders=[holder(again, kind, "orders-7")])

    assert [action for action in found.actions if not isinstance(action, do.DeleteObject)] == []
    assert found.problem is not None
    assert (found.problem.reason, found.problem.message.startswith(words)) == ("WaitingForDriver", True)


def test_an_ingestion_waits_for_the_driver_of_another_one_that_is_gone() -> None:
    gone = read_ingestion(ingestion_manifest("older", checkpoint="/lake/_checkpoints/orders"))

    found = planned(flow(), holders=[holder(gone, "Pod", "older-3-x")])

    assert begun(found) == []
    assert found.problem is not None
    assert "The pod older-3-x of the Ingestion older has not ended." in found.problem.message
    assert "the same checkpoint, /lake/_checkpoints/orders." in found.problem.message
    elsewhere = {"checkpoint": "/lake/_checkpoints/other", "sink": {"parquet": {"path": "/lake/other"}}}
    assert begun(planned(flow(**elsewhere), holders=[holder(gone)])) == ["orders-1"]


@pytest.mark.parametrize("kind", ["Job", "Pod", "CronJob"])
def test_an_older_ingestion_that_takes_a_younger_ones_checkpoint_waits(kind: str) -> None:
    shared = {"checkpoint": "/lake/_checkpoints/shared"}
    younger = read_ingestion(ingestion_manifest("younger", 5, **shared))

    found = planned(flow(**shared), holders=[holder(younger, kind, "younger-1")])

    assert begun(found) == []
    assert found.problem is not None
    assert found.problem.reason == "WaitingForDriver"


def test_a_suspended_ingestion_waits_for_no_driver() -> None:
    assert planned(flow(suspend=True), holders=[holder(flow())]).problem is None


def test_the_own_runs_of_an_ingestion_hold_nothing_against_it() -> None:
    run = ended(flow(), finished=None)
    mine = [
        holder(flow(), "Job", "orders-1", owner=flow().uid),
        holder(flow(), "Pod", "orders-1-x", owner=run.uid),
    ]

    assert planned(flow(), run, holders=mine).problem is None


def test_the_pod_of_a_job_that_is_not_seen_yet_does_not_suspend_the_cron_job() -> None:
    daily = one(schedule="0 13 * * *")
    seen = replace(holder(daily, "Pod", "orders-29-x"), created="2026-01-10T11:00:00Z")

    assert planned(daily, holders=[seen], CronJob=existing(daily)).actions == ()


def test_the_status_has_the_last_words_and_keeps_what_was_known() -> None:
    found = planned(flow(), ended(flow(), failures=2, ago_s=1))
    before = {"lastSuccess": "2026-01-01T00:00:00Z", "rows": 5}

    status = ingestion_status(found, before, Report(lag=3), error="", now="2026-01-10T12:00:00Z")

    assert (status["lastSuccess"], status["rows"], status["lag"]) == ("2026-01-01T00:00:00Z", 5, 3)
    assert status["lastRun"]["message"] == "No broker answers."
    assert status["lastFailure"]["exitCode"] == 75
    assert status["attempts"] == 3
    ready = status["conditions"][0]
    assert ready["message"] == "The run orders-1 failed. No broker answers."


@pytest.mark.parametrize(
    ("report", "ready", "words"),
    [
        (
            Report(no_executor_since="2026-01-10T11:49:59.500Z"),
            ("NoExecutor", "False"),
            "since 2026-01-10T11:49",
        ),
        (Report(no_executor_since="2026-01-10T11:59:00Z"), ("Running", "True"), "is running."),
        (Report(at="2026-01-10T11:49:00Z"), ("Running", "True"), "no batch since 2026-01-10T11:49:00Z"),
        (Report(at="2026-01-10T11:59:00.123Z"), ("Running", "True"), "is running."),
        (Report(), ("Running", "True"), "no batch since 2026-01-10T11:00:00Z"),
    ],
    ids=["no executor", "no executor yet", "idle", "working", "no report"],
)
@pytest.mark.parametrize("when", [{"continuous": True}, {"schedule": "0 13 * * *"}], ids=["flow", "daily"])
def test_a_run_that_makes_no_progress_says_where_to_look(
    when: dict[str, Any], report: Report, ready: tuple[str, str], words: str
) -> None:
    run = ended(flow(), finished=None, scheduled="schedule" in when)
    run = replace(run, pods=[replace(run.pods[0], running=True, exit_code=None)])
    ingestion = one(**when)
    there = {"CronJob": existing(ingestion)} if "schedule" in when else {}

    status = ingestion_status(
        planned(ingestion, run, **there), {}, report, error="", now="2026-01-10T12:00:00Z"
    )

    found, _, running = status["conditions"]
    assert (found["reason"], found["status"]) == ready
    assert words in found["message"]
    assert running["status"] == "True"


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [(0, "Running", "The driver p has done its work."), (75, "Retrying", "failed with exit code 75.")],
)
def test_a_driver_that_succeeded_has_not_failed_before_its_run_ends(
    code: int, reason: str, words: str
) -> None:
    run = ended(daily := one(schedule="0 13 * * *"), code=code, finished=None, scheduled=True)

    status = ingestion_status(
        planned(daily, run, CronJob=existing(daily)), {}, Report(), error="", now="2026-01-10T12:00:00Z"
    )

    running = status["conditions"][2]
    assert running["reason"] == reason
    assert words in running["message"]


MANY = {"orders": {str(partition): 7 for partition in range(OFFSETS_SHOWN_MAX + 1)}}


@pytest.mark.parametrize(
    ("report", "offsets"),
    [
        (
            Report(rows=6, lag=1, offsets={"orders": {"0": 9}}, at="2026-01-10T11:59:00Z"),
            {"orders": {"0": 9}},
        ),
        (Report(rows=6, lag=1, offsets=MANY, at="2026-01-10T11:59:00Z"), None),
        (Report(rows=6, lag=1, at="2026-01-10T11:59:00Z"), None),
        (Report(rows=0, offsets={}), {"orders": {"0": 5}}),
        (Report(message="OOMKilled"), {"orders": {"0": 5}}),
        (Report(), {"orders": {"0": 5}}),
    ],
    ids=["new", "too many", "left out", "nothing written yet", "no numbers", "no report"],
)
def test_offsets_of_an_earlier_report_do_not_stay_beside_newer_rows(report: Report, offsets: Any) -> None:
    found = planned(flow(), ended(flow(), finished=None))
    before = {"rows": 5, "offsets": {"orders": {"0": 5}}}

    status = ingestion_status(found, before, report, error="", now="2026-01-10T12:00:00Z")

    assert status.get("offsets") == offsets


def test_the_status_tells_a_failure_that_was_seen_after_the_next_run_began() -> None:
    first = ended(flow(), ago_s=1)
    second = replace(first, name="orders-2", number=2, finished=None, why="", pods=(), created=NOW)

    found = planned(flow(), first, second)
    status = ingestion_status(found, {}, Report(), error="", now="2026-01-10T12:00:00Z")

    assert status["lastRun"] == {
        "name": "orders-2", "result": "Running", "startedAt": "2026-01-10T12:00:00Z",
    }  # fmt: skip
    assert status["lastFailure"] == {
        "name": "orders-1", "finishedAt": "2026-01-10T11:59:59Z", "exitCode": 75,
        "message": "No broker answers.",
    }  # fmt: skip
