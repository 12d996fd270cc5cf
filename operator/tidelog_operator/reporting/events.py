"""The events that `kubectl describe` shows besides the status: what the operator did, or could not do. Pure.

A status says how an object is; an event says what happened to it and when. There is one for each action that
a user can see, and none for actions that only the operator needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from tidelog.model import StreamSettings
from tidelog.wording import listed
from tidelog_operator import actions as do
from tidelog_operator.model import Manifest
from tidelog_operator.resources.stateful_set import read_pods

STUCK: Final = frozenset({"Conflict", "Invalid", "WaitingForBrokers", "VolumeLost", "CannotScale"}) | {
    "ClusterNotFound",
    "StreamNotFound",
    "CheckpointInUse",
    "SinkInUse",
    "WaitingForDriver",
    "UnknownTimeZone",
    "InvalidSchedule",
    "NeverDue",
    "BadConfiguration",
    "NotStarted",
    "NoExecutor",
    "Late",
}
"""Reasons of conditions in which the operator waits for a user's change, or until it is certain."""

FIELDS: Final[Mapping[str, str]] = {
    "subject": "subject",
    "partitions": "partitions",
    "replication_factor": "replicationFactor",
    "min_insync_replicas": "minInsyncReplicas",
    "durability": "durability",
    "retention": "retention",
    "segment_bytes": "segments.bytes",
    "segment_age_ms": "segments.age",
    "batch_bytes_max": "limits.batchBytes",
    "timestamp_ahead_ms_max": "limits.timestampAhead",
    "nats_ack": "nats.ack",
    "dedupe_window_ms": "dedupe.window",
    "dedupe_count_max": "dedupe.count",
}
"""The name of each setting in the spec of a Stream."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its reason, its message, and whether it is a warning."""

    reason: str
    """In CamelCase."""
    note: str
    warning: bool = False


def event_of(action: do.StreamAction | do.ClusterAction) -> Event | None:
    """Returns the event of a successful action; None: users do not see the action."""
    match action:
        case do.CreateStream(name=name, replicas=replicas):
            partitions, each = _count(len(replicas), "partition"), _count(len(replicas[0]), "replica")
            return Event("Created", f"Created the stream {name} with {partitions} and {each} of each.")
        case do.AlterStream():
            return _altered(action)
        case do.RetainStream(claim, name):
            deleted = f"The Stream {claim.key.name} was deleted."
            return Event("Retained", f"{deleted} The brokers keep the stream {name} and its records.")
        case do.DeleteStream(name=name):
            return Event("Deleted", f"Deleted the stream {name} and all its records.")
        case do.Reassign(moves, why):
            return Event("Moving", f"Moving replicas of {_count(len(moves), 'partition')} {why}.")
        case do.CordonBroker(broker):
            return Event("Cordoned", f"Broker {broker} gets no new replicas, because it will be removed.")
        case do.UncordonBroker(broker):
            return Event(
                "Uncordoned", f"Broker {broker} will not be removed, and can get new replicas again."
            )
        case do.UnregisterBroker(broker):
            return Event("Unregistered", f"Unregistered broker {broker}, which holds no replicas.")
        case do.ElectPreferred(names):
            return Event("Elected", f"Elected the preferred leaders of {_count(len(names), 'stream')}.")
        case do.Throttle(speed):
            limit = (
                f"at most {speed} bytes per second" if speed else "as fast as each broker's settings allow"
            )
            return Event("Throttled", f"Replicas that are far behind now catch up {limit}.")
        case do.CreateObject(manifest):
            return Event("Created", f"Created {_object(manifest)}.")
        case do.ApplyObject(manifest):
            return Event("Applied", f"Applied {_object(manifest)}.")
        case do.DeleteObject(kind, key):
            return Event("Deleted", f"Deleted the {kind} {key.name}.")
        case do.AddFinalizer() | do.RemoveFinalizer() | do.SetLowestCount():
            return None
        case _:
            assert_never(action)


def failure_of(action: do.StreamAction | do.ClusterAction, why: str) -> Event:
    """Returns the event of a failed action; the operator tries it again."""
    return Event("Failed", f"Cannot {attempt(action)}: {why}", warning=True)


def events_of_status(before: Manifest, after: Manifest) -> tuple[Event, ...]:
    """Returns the events of a status change, for the changes that users wait for."""
    known = {_reason_and_message(one) for one in before.get("conditions", ())}
    stuck = [_reason_and_message(one) for one in after.get("conditions", ()) if one["reason"] in STUCK]
    # The same reason can stand in two conditions.
    events = [Event(*one, warning=True) for one in dict.fromkeys(stuck) if one not in known]
    events += _events_of_failure(before.get("lastFailure") or {}, after.get("lastFailure") or {})
    events += _events_of_run(before.get("lastRun") or {}, after.get("lastRun") or {})
    if before.get("moving") and after.get("moving") == 0:
        events.append(Event("Moved", "All replicas are on their new brokers."))
    return tuple(events)


def _events_of_failure(before: Manifest, after: Manifest) -> list[Event]:
    """Returns the event of an Ingestion's last failed run.

    The next run may have begun since, so the last run need not be this run. The words of the driver may come
    after the end of the run: then they come as another event.
    """
    name, words = after.get("name"), after.get("message")
    if (name, words) == (before.get("name"), before.get("message")) or name is None:
        return []
    return [
        Event("RunFailed", f"The run {name} failed. {words or 'The driver gave no reason.'}", warning=True)
    ]


def _events_of_run(before: Manifest, after: Manifest) -> list[Event]:
    """Returns the events of an Ingestion's last run, except that it failed."""
    name, result = after.get("name"), after.get("result")
    if (name, result) == (before.get("name"), before.get("result")):
        return []
    if result == "Running":
        return [Event("RunStarted", f"The run {name} has begun.")]
    if result == "Succeeded":
        return [Event("RunSucceeded", f"The run {name} has ended successfully.")]
    return []


def _altered(action: do.AlterStream) -> Event:
    name, changes = action.name, _changes(action.settings)
    if action.owner is None:
        return Event("Altered", f"Changed {changes} of the stream {name}.")
    also = f", and changed its {changes}" if changes else ""
    return Event("Adopted", f"Adopted the stream {name} with its records{also}.")


def _changes(settings: StreamSettings) -> str:
    names = [FIELDS[name] for name in settings.given()]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def attempt(action: do.StreamAction | do.ClusterAction) -> str:
    """Returns what the action does, in the infinitive."""
    match action:
        case do.CreateStream(name=name):
            return f"create the stream {name}"
        case do.AlterStream(name=name):
            return f"change the stream {name}"
        case do.RetainStream(name=name):
            return f"retain the stream {name}"
        case do.DeleteStream(name=name):
            return f"delete the stream {name}"
        case do.Reassign(moves):
            return f"move replicas of {_count(len(moves), 'partition')}"
        case do.AddFinalizer(kind) | do.RemoveFinalizer(kind):
            return f"change the finalizers of this {kind}"
        case do.CordonBroker(broker):
            return f"cordon broker {broker}"
        case do.UncordonBroker(broker):
            return f"uncordon broker {broker}"
        case do.UnregisterBroker(broker):
            return f"unregister broker {broker}"
        case do.ElectPreferred(names):
            return f"elect the preferred leaders of {_count(len(names), 'stream')}"
        case do.Throttle():
            return "change the catch-up rate of replicas"
        case do.CreateObject(manifest):
            return f"create {_object(manifest)}"
        case do.ApplyObject(manifest):
            return f"apply {_object(manifest)}"
        case do.DeleteObject(kind, key):
            return f"delete the {kind} {key.name}"
        case do.SetLowestCount():
            return "record the lowest allowed number of brokers"
        case _:
            assert_never(action)


def _reason_and_message(condition: Manifest) -> tuple[str, str]:
    return condition["reason"], condition["message"]


def _object(manifest: Manifest) -> str:
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if kind != "StatefulSet":
        return f"the {kind} {name}"
    pods = read_pods(manifest)
    leaving = f", of which {listed(pods.draining)} will be removed" if pods.draining else ""
    return f"the StatefulSet {name} with {_count(pods.count, 'broker')}{leaving}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
