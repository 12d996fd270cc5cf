"""What `kubectl describe` tells of an object besides its status: what was done, or could not be. Pure.

A status says how an object is; an event, what became of it and when. There is one for each action that
somebody can see, and none for what only the operator needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from tidelog.model import StreamSettings
from tidelog_operator import actions as do
from tidelog_operator.model import Manifest
from tidelog_operator.resources.stateful_set import read_pods

STUCK: Final = frozenset({"Conflict", "Invalid", "WaitingForBrokers", "VolumeLost", "CannotScale"})
"""Reasons of conditions: the operator does nothing before somebody else has, or before it is sure."""

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
"""What a setting is called in the spec of a Stream."""


@dataclass(frozen=True, slots=True)
class Event:
    reason: str
    """A word, in CamelCase."""
    note: str
    warning: bool = False


def event_of(action: do.StreamAction | do.ClusterAction) -> Event | None:
    """That it was done; None: nobody sees it."""
    match action:
        case do.CreateStream(name=name, replicas=replicas):
            copies = _count(len(replicas[0]), "copy", "copies")
            partitions = _count(len(replicas), "partition")
            return Event("Created", f"made the stream {name} with {partitions} of {copies}")
        case do.AlterStream():
            return _altered(action)
        case do.RetainStream(claim, name):
            gone = f"the Stream {claim.key.name} is gone"
            return Event("LetGo", f"{gone}; the stream {name} stays, with all its records")
        case do.DeleteStream(name=name):
            return Event("Deleted", f"deleted the stream {name} with all its records")
        case do.Reassign(moves, why):
            return Event("Moving", f"began to move copies of {_count(len(moves), 'partition')}: {why}")
        case do.CordonBroker(broker):
            return Event("Cordoned", f"broker {broker} gets no more copies: it is to go")
        case do.UncordonBroker(broker):
            return Event("Uncordoned", f"broker {broker} stays, and gets copies again")
        case do.UnregisterBroker(broker):
            return Event("Unregistered", f"broker {broker} held nothing any more, and is gone for good")
        case do.ElectPreferred(names):
            return Event("Elected", f"gave {_count(len(names), 'stream')} back to the preferred leaders")
        case do.Throttle(speed):
            limit = f"at most {speed} bytes a second" if speed else "as each broker is set"
            return Event("Throttled", f"copies that are far behind are fed {limit}")
        case do.CreateObject(manifest):
            return Event("Created", f"made {_object(manifest)}")
        case do.ApplyObject(manifest):
            return Event("Applied", f"applied {_object(manifest)}")
        case do.DeleteObject(kind, key):
            return Event("Deleted", f"deleted the {kind} {key.name}")
        case do.AddFinalizer() | do.RemoveFinalizer() | do.SetLowestCount():
            return None
        case _:
            assert_never(action)


def failure_of(action: do.StreamAction | do.ClusterAction, why: str) -> Event:
    """That it could not be done; it is tried again."""
    return Event("Failed", f"could not {attempt(action)}: {why}", warning=True)


def events_of_status(before: Manifest, after: Manifest) -> tuple[Event, ...]:
    """What an object was told of itself, and is told now, as far as people wait for it."""
    known = {_told(one) for one in before.get("conditions", ())}
    stuck = [_told(one) for one in after.get("conditions", ()) if one["reason"] in STUCK]
    # One reason can stand in two conditions.
    events = [Event(*one, warning=True) for one in dict.fromkeys(stuck) if one not in known]
    if before.get("moving") and after.get("moving") == 0:
        events.append(Event("Moved", "every copy lies where it is to lie"))
    return tuple(events)


def _altered(action: do.AlterStream) -> Event:
    name, changes = action.name, _changes(action.settings)
    if action.owner is None:
        return Event("Altered", f"set {changes} of the stream {name}")
    also = f", and set its {changes}" if changes else ""
    return Event("Adopted", f"took over the stream {name} with the records that it has{also}")


def _changes(settings: StreamSettings) -> str:
    names = [FIELDS[name] for name in settings.given()]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def attempt(action: do.StreamAction | do.ClusterAction) -> str:
    """What is done by it, in a few words."""
    match action:
        case do.CreateStream(name=name):
            return f"make the stream {name}"
        case do.AlterStream(name=name):
            return f"change the stream {name}"
        case do.RetainStream(name=name):
            return f"let the stream {name} go"
        case do.DeleteStream(name=name):
            return f"delete the stream {name}"
        case do.Reassign(moves):
            return f"move copies of {_count(len(moves), 'partition')}"
        case do.AddFinalizer(kind) | do.RemoveFinalizer(kind):
            return f"change the finalizers of this {kind}"
        case do.CordonBroker(broker):
            return f"cordon broker {broker}"
        case do.UncordonBroker(broker):
            return f"uncordon broker {broker}"
        case do.UnregisterBroker(broker):
            return f"unregister broker {broker}"
        case do.ElectPreferred(names):
            return f"give {_count(len(names), 'stream')} back to the preferred leaders"
        case do.Throttle():
            return "say how fast copies are fed that are far behind"
        case do.CreateObject(manifest):
            return f"make {_object(manifest)}"
        case do.ApplyObject(manifest):
            return f"apply {_object(manifest)}"
        case do.DeleteObject(kind, key):
            return f"delete the {kind} {key.name}"
        case do.SetLowestCount():
            return "say how many brokers are safe"
        case _:
            assert_never(action)


def _told(condition: Manifest) -> tuple[str, str]:
    return condition["reason"], condition["message"]


def _object(manifest: Manifest) -> str:
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if kind != "StatefulSet":
        return f"the {kind} {name}"
    pods = read_pods(manifest)
    leaving = f", and {', '.join(map(str, pods.draining))} to be emptied" if pods.draining else ""
    return f"the StatefulSet {name} with {_count(pods.count, 'broker')}{leaving}"


def _count(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
