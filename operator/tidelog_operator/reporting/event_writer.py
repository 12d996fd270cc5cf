"""Writes events (`events`) in the background: nothing waits for them, and nothing fails because of them.

If the same event of the same object repeats, its count increases; no second Event is created. The API server
deletes events after an hour; the status says how an object is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import structlog

from tidelog_operator.kubernetes.api import EVENT, KINDS, KUBE_FAILURES, Outdated
from tidelog_operator.model import GROUP, VERSION, CustomResource, Manifest, ObjectKey
from tidelog_operator.reporting.events import Event

log = structlog.get_logger(__name__)

QUEUE_MAX: Final = 1000
"""Events that wait to be written; more are dropped."""

SAME_FOR: Final = timedelta(minutes=10)
"""An event that repeats within this time belongs to the same series."""

WRITTEN_EVERY: Final = timedelta(minutes=1)
"""How often the count of a series is written; in between it only increases in memory."""

OBJECT_EVENTS_MAX: Final = 30
"""Different events of one object within `SAME_FOR`; more are dropped."""

REMEMBERED_MAX: Final = 10_000
"""Series that are kept in memory."""

NOTE_BYTES_MAX: Final = 1024
"""The limit of the API server for a note."""

REASON_CHARACTERS_MAX: Final = 500
"""Characters of an API server message in a log line."""

CONTROLLER: Final = "tidelog.io/operator"


class EventsApi(Protocol):
    """The requests of `Kube` that the writer uses."""

    async def create(self, manifest: Manifest) -> Manifest: ...

    async def patch(self, kind: str, key: ObjectKey, change: Manifest) -> None: ...


@dataclass(slots=True)
class _Series:
    """An event of one object, and how often it occurred."""

    one: CustomResource
    event: Event
    first: datetime
    last: datetime
    count: int = 1
    name: str = ""
    """The name of the written Event object; empty: none was written."""
    written: datetime | None = None
    """The time of the last attempt to write it."""
    waiting_reason: bool = False
    """Whether it is in the queue."""

    def __repr__(self) -> str:
        return f"<{self.event.reason} of {self.one.key} times={self.count}>"


def _now() -> datetime:
    return datetime.now(UTC)


class EventWriter:
    """The queue of events, on one event loop; `run` writes them."""

    def __init__(self, api: EventsApi, identity: str, now: Callable[[], datetime] = _now) -> None:
        """`identity`: the identity of this operator, for `reportingInstance`."""
        self._api = api
        self._identity = identity
        self._now = now
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(QUEUE_MAX)
        self._known: dict[tuple[str, Event], _Series] = {}
        """By the object's uid, ordered by the last occurrence."""
        self._of_object: Counter[str] = Counter()
        """The number of series of each object."""
        self._full = False
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<EventWriter waiting={self._queue.qsize()} dropped={self.dropped}>"

    def put(self, one: CustomResource, event: Event) -> None:
        """Queues an event; returns at once."""
        now = self._now()
        self._forget(now)
        key = (one.uid, event)
        series = self._known.pop(key, None)
        if series is not None:
            series.count, series.last = series.count + 1, now
        elif self._of_object[one.uid] < OBJECT_EVENTS_MAX:
            series = _Series(one, event, first=now, last=now)
            self._of_object[one.uid] += 1
        else:
            self.dropped += 1
            return
        self._known[key] = series
        if not series.waiting_reason and (series.written is None or now - series.written >= WRITTEN_EVERY):
            self._enqueue(series)

    def _enqueue(self, series: _Series) -> None:
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.dropped += 1
            if not self._full:
                log.warning("dropping events: too many wait to be written", limit=QUEUE_MAX)
            self._full = True
            return
        self._full, series.waiting_reason = False, True

    def _forget(self, now: datetime) -> None:
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if now - oldest.last <= SAME_FOR and len(self._known) < REMEMBERED_MAX:
                return
            del self._known[key]
            self._of_object[key[0]] -= 1
            if not self._of_object[key[0]]:
                del self._of_object[key[0]]

    async def run(self) -> None:
        """Writes events until it is cancelled; events that are still queued are lost."""
        while True:
            series = await self._queue.get()
            series.waiting_reason, series.written = False, self._now()
            try:
                await self._write(series)
            except KUBE_FAILURES as error:
                log.warning("cannot write an event", event=repr(series), reason=_message(error))
            except Outdated:
                log.warning("cannot write an event: its namespace is gone", event=repr(series))
            except Exception:
                log.exception("cannot write an event", event=repr(series))

    async def _write(self, series: _Series) -> None:
        if series.name:
            written = ObjectKey(series.one.key.namespace, series.name)
            try:
                await self._api.patch(EVENT, written, {"series": _series_body(series)})
            except Outdated:
                series.name = ""
            else:
                return
        made = await self._api.create(self._manifest(series))
        series.name = made["metadata"]["name"]

    def _manifest(self, series: _Series) -> dict[str, Any]:
        one, event = series.one, series.event
        return {
            "apiVersion": KINDS[EVENT].version,
            "kind": EVENT,
            "metadata": {"namespace": one.key.namespace, "generateName": f"{one.key.name}-"},
            "eventTime": _written(series.first),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.reason,
            "note": _cut(event.note),
            "regarding": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": one.kind,
                "namespace": one.key.namespace,
                "name": one.key.name,
                "uid": one.uid,
            },
            "reportingController": CONTROLLER,
            "reportingInstance": self._identity[-128:],
            **({"series": _series_body(series)} if series.count > 1 else {}),
        }


def _series_body(series: _Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": _written(series.last)}


def _written(moment: datetime) -> str:
    """Formats a time with microseconds; the API server rejects it otherwise."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _message(error: Exception) -> str:
    """Returns the message of the API server, if there is one."""
    return str(getattr(error, "body", None) or error)[:REASON_CHARACTERS_MAX]


def _cut(note: str) -> str:
    data = note.encode()
    if len(data) <= NOTE_BYTES_MAX:
        return note
    return data[: NOTE_BYTES_MAX - 3].decode(errors="ignore") + "…"
