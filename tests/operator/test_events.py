"""Events: a sentence for every action, and a writer that counts, forgets and never blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from kubernetes.aio.client.exceptions import ApiException

from support.kube.situations import NAMESPACE, stream_object
from support.waiting import until
from tidelog.model import PartitionVersion, StreamSettings
from tidelog_operator import actions as do
from tidelog_operator.kubernetes.api import Outdated
from tidelog_operator.model import STREAM, ObjectKey, StreamClaim
from tidelog_operator.reporting import event_writer
from tidelog_operator.reporting.event_writer import EventWriter
from tidelog_operator.reporting.events import FIELDS, Event, event_of, events_of_status, failure_of
from tidelog_operator.resources.stateful_set import DRAINING_ANNOTATION

KEY = ObjectKey(NAMESPACE, "orders")
MOVE = do.MovePartition("orders", 0, (1, 2), PartitionVersion(bytes(16), 4))
NAMES = ("orders", "clicks")


def manifest(kind: str, spec: Any = None, **annotations: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "main", "annotations": annotations}, "spec": spec}


PODS = manifest("StatefulSet", {"replicas": 3})
LEAVING = manifest("StatefulSet", {"replicas": 3}, **{DRAINING_ANNOTATION: "1,2"})

SAID = [
    (
        do.CreateStream(KEY, "orders", StreamSettings(), "", ((0, 1, 2), (1, 2, 0), (2, 0, 1))),
        "Created: Created the stream orders with 3 partitions and 3 replicas of each.",
    ),
    (
        do.CreateStream(KEY, "orders", StreamSettings(), "", ((0,),)),
        "Created: Created the stream orders with 1 partition and 1 replica of each.",
    ),
    (
        do.AlterStream(KEY, "orders", b"", 1, StreamSettings(subject="a", partitions=2, dedupe_count_max=1)),
        "Altered: Changed subject, partitions and dedupe.count of the stream orders.",
    ),
    (
        do.AlterStream(KEY, "orders", b"", 1, owner="kubernetes:shop/orders/1"),
        "Adopted: Adopted the stream orders with its records.",
    ),
    (
        do.AlterStream(KEY, "orders", b"", 1, StreamSettings(segment_bytes=1), "kubernetes:shop/orders/1"),
        "Adopted: Adopted the stream orders with its records, and changed its segments.bytes.",
    ),
    (
        do.RetainStream(StreamClaim(KEY, "1"), "orders.eu", b"", 1, "retained:shop/orders"),
        "Retained: The Stream orders was deleted. The brokers keep the stream orders.eu and its records.",
    ),
    (do.DeleteStream(KEY, "orders", b"", 1), "Deleted: Deleted the stream orders and all its records."),
    (
        do.Reassign((MOVE, MOVE), "to drain brokers that will be removed"),
        "Moving: Moving replicas of 2 partitions to drain brokers that will be removed.",
    ),
    (do.CordonBroker(3, 7), "Cordoned: Broker 3 gets no new replicas, because it will be removed."),
    (do.UncordonBroker(3, 7), "Uncordoned: Broker 3 will not be removed, and can get new replicas again."),
    (do.UnregisterBroker(3, 7), "Unregistered: Unregistered broker 3, which holds no replicas."),
    (do.ElectPreferred(NAMES), "Elected: Elected the preferred leaders of 2 streams."),
    (
        do.Throttle(1000),
        "Throttled: Replicas that are far behind now catch up at most 1000 bytes per second.",
    ),
    (
        do.Throttle(0),
        "Throttled: Replicas that are far behind now catch up as fast as each broker's settings allow.",
    ),
    (do.CreateObject(manifest("ConfigMap")), "Created: Created the ConfigMap main."),
    (do.ApplyObject(manifest("Service")), "Applied: Applied the Service main."),
    (do.ApplyObject(PODS), "Applied: Applied the StatefulSet main with 3 brokers."),
    (
        do.ApplyObject(LEAVING),
        "Applied: Applied the StatefulSet main with 3 brokers, of which 1, 2 will be removed.",
    ),
    (do.DeleteObject("Pod", ObjectKey(NAMESPACE, "main-2"), ""), "Deleted: Deleted the Pod main-2."),
    (do.SetLowestCount(KEY, 3), None),
    (do.AddFinalizer(STREAM, KEY), None),
    (do.RemoveFinalizer(STREAM, KEY), None),
]


@pytest.mark.parametrize(("action", "said"), SAID)
def test_each_successful_action_has_an_event_with_a_sentence(action: Any, said: str | None) -> None:
    event = event_of(action)

    assert (None if event is None else f"{event.reason}: {event.note}") == said
    assert event is None or not event.warning


def test_the_table_of_events_covers_every_action() -> None:
    kinds = {*get_args(do.StreamAction), *get_args(do.ClusterAction)}

    assert {type(action) for action, _ in SAID} == kinds
    assert FIELDS.keys() == {field.name for field in fields(StreamSettings)}


@pytest.mark.parametrize("action", [action for action, _ in SAID])
def test_a_failed_action_is_a_warning(action: Any) -> None:
    event = failure_of(action, "no broker answers")

    assert event.reason == "Failed"
    assert event.note.startswith("Cannot ")
    assert event.note.endswith(": no broker answers")
    assert event.warning


def status(reason: str = "Serving", message: str = "", **facts: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "reason": reason, "message": message}], **facts}


RUNNING = {"name": "x-2", "result": "Running"}


def two(reason: str) -> dict[str, Any]:
    conditions = [{"type": kind, "reason": reason, "message": "it is"} for kind in ("Ready", "Scaled")]
    return {"conditions": conditions}


@pytest.mark.parametrize(
    ("before", "after", "event"),
    [
        ({}, status(), None),
        ({}, status("Conflict", "it is another's"), Event("Conflict", "it is another's", warning=True)),
        (status("Conflict", "it is another's"), status("Conflict", "it is another's"), None),
        (status("Creating"), status("WaitingForBrokers", "3"), Event("WaitingForBrokers", "3", warning=True)),
        (two("Scaled"), two("CannotScale"), Event("CannotScale", "it is", warning=True)),
        (status("Conflict", "it is another's"), status(), None),
        (status("NoLeader"), status("BrokersUnreachable"), None),
        (status(moving=2), status(moving=1), None),
        (status(moving=2), status(moving=0), Event("Moved", "All replicas are on their new brokers.")),
        (status(moving=2), status("Deleting"), None),
        (status(moving=0), status(moving=0), None),
        (status(), status(lastRun=RUNNING), Event("RunStarted", "The run x-2 has begun.")),
        (status(lastRun=RUNNING), status(lastRun=RUNNING, rows=5), None),
        (
            status(lastRun=RUNNING),
            status(lastRun={**RUNNING, "result": "Succeeded"}),
            Event("RunSucceeded", "The run x-2 has ended successfully."),
        ),
        # The failure of the run before it was seen only after the next run had begun.
        (
            status(lastRun=RUNNING),
            status(lastRun=RUNNING, lastFailure={"name": "x-1", "message": "No broker answers."}),
            Event("RunFailed", "The run x-1 failed. No broker answers.", warning=True),
        ),
        (
            status(lastFailure={"name": "x-1"}),
            status(lastFailure={"name": "x-1"}, lastRun={"name": "x-1", "result": "Failed"}),
            None,
        ),
        (
            status(),
            status(lastFailure={"name": "x-1"}),
            Event("RunFailed", "The run x-1 failed. The driver gave no reason.", warning=True),
        ),
    ],
)
def test_status_changes_that_users_wait_for_have_events(
    before: dict[str, Any], after: dict[str, Any], event: Event | None
) -> None:
    assert events_of_status(before, after) == (() if event is None else (event,))


# --- the writer


class Api:
    """Records the requests to the API server."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.refuses: Exception | None = None

    async def create(self, manifest: Any) -> Any:
        if self.refuses is not None:
            raise self.refuses
        self.made.append(manifest)
        return {"metadata": {"name": f"event-{len(self.made)}"}}

    async def patch(self, kind: str, key: ObjectKey, change: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.patched.append((key.name, change))


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def passes(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def running(writer: EventWriter) -> AsyncIterator[None]:
    task = asyncio.create_task(writer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def written(writer: EventWriter) -> None:
    """Waits until all queued events are written."""
    async with running(writer):
        await until(lambda: not writer._queue.qsize(), "the queue is empty")
        for _ in range(5):
            await asyncio.sleep(0)


ORDERS = stream_object("orders")
CREATED = Event("Created", "made it")


async def test_an_event_names_its_object_and_the_operator(api: Api, clock: Clock) -> None:
    writer = EventWriter(api, "pod-1", clock)

    writer.put(ORDERS, CREATED)
    await written(writer)

    (made,) = api.made
    assert made["metadata"] == {"namespace": NAMESPACE, "generateName": "orders-"}
    assert made["regarding"]["kind"] == "Stream"
    assert made["regarding"]["uid"] == "uid-of-orders"
    assert (made["type"], made["reason"], made["note"]) == ("Normal", "Created", "made it")
    assert made["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert made["reportingInstance"] == "pod-1"


async def test_the_count_of_a_repeated_event_is_written_once_a_minute(api: Api, clock: Clock) -> None:
    writer = EventWriter(api, "pod-1", clock)
    for _ in range(3):
        writer.put(ORDERS, CREATED)
        await written(writer)
        clock.passes(seconds=20)
    assert len(api.made) == 1
    assert api.patched == []

    clock.passes(seconds=1)
    writer.put(ORDERS, CREATED)
    await written(writer)

    assert len(api.made) == 1
    assert api.patched == [
        ("event-1", {"series": {"count": 4, "lastObservedTime": "2026-01-01T00:01:01.000000Z"}})
    ]


async def test_an_event_after_ten_minutes_is_a_new_series(api: Api, clock: Clock) -> None:
    writer = EventWriter(api, "pod-1", clock)
    writer.put(ORDERS, CREATED)
    await written(writer)

    clock.passes(minutes=10, seconds=1)
    writer.put(ORDERS, CREATED)
    await written(writer)

    assert len(api.made) == 2
    assert writer._known.keys() == {("uid-of-orders", CREATED)}


async def test_an_event_that_the_api_server_deleted_is_created_again(api: Api, clock: Clock) -> None:
    writer = EventWriter(api, "pod-1", clock)
    writer.put(ORDERS, CREATED)
    await written(writer)

    async def gone(*_: Any, **__: Any) -> None:
        raise Outdated("it is deleted")

    api.patch = gone  # type: ignore[method-assign]
    clock.passes(minutes=2)
    writer.put(ORDERS, CREATED)
    await written(writer)

    assert [one.get("series", {}).get("count") for one in api.made] == [None, 2]


async def test_a_rejected_event_is_lost_but_the_next_one_is_written(api: Api, clock: Clock) -> None:
    writer = EventWriter(api, "pod-1", clock)
    api.refuses = ApiException(status=403)
    writer.put(ORDERS, CREATED)
    await written(writer)

    api.refuses = None
    writer.put(ORDERS, Event("Deleted", "deleted it"))
    await written(writer)

    assert [one["reason"] for one in api.made] == ["Deleted"]


async def test_a_full_queue_drops_events_and_logs_it(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_writer, "QUEUE_MAX", 3)
    writer = EventWriter(api, "pod-1", clock)

    for number in range(5):
        writer.put(stream_object(f"one-{number}"), CREATED)
    await written(writer)

    assert len(api.made) == 3
    assert writer.dropped == 2
    assert capsys.readouterr().out.count("dropping events") == 1


async def test_an_object_with_many_different_events_leaves_room_for_others(api: Api, clock: Clock) -> None:
    writer = EventWriter(api, "pod-1", clock)
    for number in range(event_writer.OBJECT_EVENTS_MAX + 5):
        writer.put(ORDERS, Event("Failed", f"attempt {number}"))
    writer.put(stream_object("clicks"), CREATED)
    await written(writer)

    assert len(api.made) == event_writer.OBJECT_EVENTS_MAX + 1
    assert writer.dropped == 5

    clock.passes(minutes=11)
    writer.put(ORDERS, CREATED)
    await written(writer)
    assert writer._of_object == {"uid-of-orders": 1}


async def test_the_number_of_remembered_series_is_limited(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_writer, "REMEMBERED_MAX", 3)
    writer = EventWriter(api, "pod-1", clock)

    for number in range(10):
        writer.put(stream_object(f"one-{number}"), CREATED)

    assert [uid for uid, _ in writer._known] == ["uid-of-one-7", "uid-of-one-8", "uid-of-one-9"]


async def test_a_note_is_cut_at_the_limit_of_the_api_server(api: Api, clock: Clock) -> None:
    writer = EventWriter(api, "pod-1", clock)

    writer.put(ORDERS, Event("Failed", "ä" * 1000))
    await written(writer)

    note = api.made[0]["note"]
    assert note.endswith("ä…")
    assert 1020 <= len(note.encode()) <= 1024
