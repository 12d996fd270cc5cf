"""Ingestions as typed values, and the runs that the operator observes: parsed once, where they enter the
operator.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from tidelog_operator.field_values import duration_ms, size_bytes
from tidelog_operator.model import INGESTION, Manifest, ObjectKey, why_unreadable

MIB: Final = 1 << 20
OVERHEAD_SHARE: Final = 0.4
"""Memory beside the Java heap, as a share of the heap: Spark's own default for Python programs."""
OVERHEAD_BYTES_MIN: Final = 384 * MIB
"""Memory beside the heap of a Java process without Python."""
OVERHEAD_BYTES_PER_TASK: Final = 256 * MIB
"""Memory of the Python processes of one task, with its Arrow batches."""
OVERHEAD_BYTES_OF_DRIVER_MIN: Final = 1024 * MIB
"""A driver has Python processes besides those of tasks: the job itself, and several that plan for the source.
They share little memory: 730 MiB of twelve processes were seen, with one task at once."""

INTERVAL: Final = "60s"
RESTART_DELAY: Final = "10s"
RESTART_DELAY_MAX: Final = "5m"
RESTART_RESET_AFTER: Final = "10m"
RETRIES: Final = 3

EXIT_CONFIGURATION: Final = 2
"""A driver exits with this code when its configuration is wrong: the next driver would fail too."""
EXIT_FAILED: Final = 1
"""A driver exits with this code when a retry at once would fail too: lost records, bad data."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a JVM with Python beside it. MiB."""

    heap_mib: int
    overhead_mib: int

    @property
    def total_mib(self) -> int:
        return self.heap_mib + self.overhead_mib


@dataclass(frozen=True, slots=True)
class Driver:
    cpu: str
    memory: Memory


@dataclass(frozen=True, slots=True)
class Executors:
    instances: int
    """0: the driver does all work."""
    cores: int
    """Tasks that an executor does at once."""
    cpu: str
    memory: Memory


@dataclass(frozen=True, slots=True)
class Timetable:
    """When scheduled runs begin, and how long they may take. Seconds; None: no limit."""

    schedule: str
    time_zone: str
    """Empty: UTC."""
    starting_deadline_s: int | None
    active_deadline_s: int | None
    retries: int


@dataclass(frozen=True, slots=True)
class Restart:
    """When the driver of a continuous run is started again. Milliseconds."""

    delay_ms: int
    delay_ms_max: int
    reset_after_ms: int


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What driver and executors have in common."""

    image: str
    image_pull_policy: str
    """Empty: the default of Kubernetes."""
    image_pull_secrets: tuple[str, ...]
    env: tuple[Manifest, ...]
    volumes: tuple[Manifest, ...]
    volume_mounts: tuple[Manifest, ...]
    node_selector: Mapping[str, str]
    tolerations: tuple[Manifest, ...]
    priority_class: str
    """Empty: none."""


@dataclass(frozen=True, slots=True)
class IngestionSpec:
    """The desired state of an Ingestion."""

    when: Timetable | Restart
    """`Timetable`: runs by a schedule. `Restart`: one run without an end."""
    suspend: bool
    streams: tuple[str, ...]
    """Empty: a pattern selects the streams."""
    job: Manifest
    """The keys of the job's configuration file that stand in the spec as they are."""
    spark_conf: Mapping[str, str]
    service_account: str
    driver: Driver
    executors: Executors
    pods: PodSettings
    succeeded_kept: int
    failed_kept: int

    @property
    def timetable(self) -> Timetable | None:
        return self.when if isinstance(self.when, Timetable) else None


@dataclass(frozen=True, slots=True)
class IngestionObject:
    """The spec, metadata and status of an Ingestion."""

    kind: ClassVar[str] = INGESTION

    key: ObjectKey
    uid: str
    generation: int
    created: str
    """RFC 3339; of two Ingestions with one checkpoint the older one runs."""
    deleting: bool
    version: str
    """The object's resourceVersion."""
    cluster: str
    spec: IngestionSpec | None
    """None: this operator cannot read it, although it passed the schema."""
    status: Manifest
    unreadable: str = ""

    @property
    def age_rank(self) -> tuple[str, str]:
        """Smaller for older objects."""
        return (self.created, self.uid)


def read_ingestion(manifest: Manifest) -> IngestionObject:
    """Parses an Ingestion; `unreadable` says why a spec that passed the schema cannot be read."""
    meta = manifest["metadata"]
    spec, unreadable = None, ""
    try:
        spec = _spec(manifest["spec"])
    except (ValueError, KeyError, TypeError) as error:
        unreadable = why_unreadable(error)
    return IngestionObject(
        key=ObjectKey(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        generation=meta["generation"],
        created=meta["creationTimestamp"],
        deleting="deletionTimestamp" in meta,
        version=meta["resourceVersion"],
        cluster=manifest["spec"]["cluster"],
        spec=spec,
        status=manifest.get("status") or {},
        unreadable=unreadable,
    )


JOB_KEYS: Final = ("source", "value", "sink", "objectStore", "deadLetter", "checkpoint", "failOnDataLoss")
"""Fields of the spec that are keys of the job's configuration file, with the same meaning."""


def _spec(spec: Manifest) -> IngestionSpec:
    continuous = spec.get("continuous", False)
    job: dict[str, Any] = {name: spec[name] for name in JOB_KEYS if name in spec}
    if continuous:
        job["trigger"] = {"interval": (spec.get("trigger") or {}).get("interval", INTERVAL)}
    executor = spec["executor"]
    tasks = OVERHEAD_BYTES_PER_TASK * executor["cores"]
    of_driver = OVERHEAD_BYTES_OF_DRIVER_MIN + (0 if executor["instances"] else tasks)
    return IngestionSpec(
        when=_restart(spec.get("restart") or {}) if continuous else _timetable(spec),
        suspend=spec["suspend"],
        streams=tuple(spec["source"].get("streams", ())),
        job=job,
        spark_conf=spec.get("sparkConf") or {},
        service_account=spec["serviceAccountName"],
        driver=Driver(str(spec["driver"]["cpu"]), _memory(spec["driver"], of_driver)),
        executors=Executors(
            executor["instances"],
            executor["cores"],
            str(executor.get("cpu", executor["cores"])),
            _memory(executor, OVERHEAD_BYTES_MIN + tasks),
        ),
        pods=PodSettings(
            image=spec["image"],
            image_pull_policy=spec.get("imagePullPolicy", ""),
            image_pull_secrets=tuple(one["name"] for one in spec.get("imagePullSecrets", ())),
            env=tuple(spec.get("env") or ()),
            volumes=tuple(spec.get("volumes") or ()),
            volume_mounts=tuple(spec.get("volumeMounts") or ()),
            node_selector=spec.get("nodeSelector") or {},
            tolerations=tuple(spec.get("tolerations") or ()),
            priority_class=spec.get("priorityClassName", ""),
        ),
        succeeded_kept=spec["successfulRunsHistoryLimit"],
        failed_kept=spec["failedRunsHistoryLimit"],
    )


def _timetable(spec: Manifest) -> Timetable:
    return Timetable(
        schedule=spec["schedule"],
        time_zone=spec.get("timeZone", ""),
        starting_deadline_s=spec.get("startingDeadlineSeconds"),
        active_deadline_s=spec.get("activeDeadlineSeconds"),
        retries=spec.get("retries", RETRIES),
    )


def _restart(restart: Manifest) -> Restart:
    return Restart(
        delay_ms=duration_ms(restart.get("delay", RESTART_DELAY)),
        delay_ms_max=duration_ms(restart.get("delayMax", RESTART_DELAY_MAX)),
        reset_after_ms=duration_ms(restart.get("resetAfter", RESTART_RESET_AFTER)),
    )


def _memory(resources: Manifest, overhead_min: int) -> Memory:
    heap = size_bytes(resources["memory"])
    if "memoryOverhead" in resources:
        overhead = size_bytes(resources["memoryOverhead"])
    else:
        overhead = max(overhead_min, int(heap * OVERHEAD_SHARE))
    return Memory(max(1, heap // MIB), math.ceil(overhead / MIB))


# --- what runs


@dataclass(frozen=True, slots=True)
class Report:
    """What a driver reports about its run."""

    rows: int | None = None
    lag: int | None = None
    offsets: Mapping[str, Mapping[str, int]] | None = None
    at: str = ""
    """Time of the run's end, or of its last batch while it runs. RFC 3339; empty: unknown."""
    message: str = ""
    """Its last words; empty while it runs."""
    no_executor_since: str = ""
    """Since when the job has no executor and needs one. RFC 3339; empty: it has one, or needs none."""


@dataclass(frozen=True, slots=True)
class DriverPod:
    """The pod of a driver: one attempt of a run."""

    name: str
    uid: str
    job: str
    """Name of the Job that created it."""
    ip: str
    """Empty: it has no address yet."""
    created: str
    running: bool
    """Whether its container runs."""
    exit_code: int | None
    """None: its container has not ended."""
    last_words: Report
    waiting_reason: str = ""
    """Why it does not run, in the words of Kubernetes. Empty: it runs or starts normally."""
    ended: bool = False
    """Whether its container has certainly ended. A pod on a lost node has not."""
    ingestion: str = ""
    """Name of the Ingestion that it was made for."""
    owners: frozenset[str] = frozenset()
    """Their uids."""
    paths: frozenset[tuple[str, ...]] = frozenset()
    """Identities of the paths that it writes to (`resources.path_claims`)."""


@dataclass(frozen=True, slots=True)
class Run:
    """A Job of an Ingestion, as observed."""

    name: str
    uid: str
    scheduled: bool
    """Whether the CronJob created it."""
    number: int
    """Of a continuous run: counts up. 0 for a scheduled run."""
    failures: int
    """Of a continuous run: failures in a row before it."""
    manifest: str
    """Hash of what it was made from; empty: unknown."""
    created: datetime
    finished: datetime | None
    succeeded: bool
    why: str
    """Why the Job failed, in the words of Kubernetes. Empty: it did not fail."""
    deleting: bool
    pods: Sequence[DriverPod] = field(default_factory=tuple)
    """Its drivers, the oldest first."""

    @property
    def active(self) -> bool:
        """Whether a driver of it runs, or may run."""
        return self.finished is None or self.deleting

    @property
    def started(self) -> bool:
        """Whether a driver of it runs or has run."""
        return any(pod.running or pod.exit_code is not None for pod in self.pods)

    @property
    def exit_code(self) -> int | None:
        """Exit code of its last driver; None: unknown."""
        return self.pods[-1].exit_code if self.pods else None


def read_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


REPORT_BYTES_MAX: Final = 1 << 20
MESSAGE_CHARACTERS_MAX: Final = 1000


def read_report(text: str) -> Report:
    """Parses a report of a driver. A text that is no report is the message itself: the last lines of its
    log."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return Report(message=_shortened(text.strip()))
    return Report(
        rows=_count(found.get("rows")),
        lag=_count(found.get("lag")),
        offsets=_offsets(found.get("offsets")),
        at=_time(found.get("finishedAt")) or _time(found.get("lastBatchAt")),
        message=_shortened(str(found.get("message") or "")),
        no_executor_since=_time(found.get("noExecutorSince")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _time(value: object) -> str:
    """Returns the time if it is one; else an empty text."""
    try:
        read_time(value if isinstance(value, str) else "")
    except ValueError:
        return ""
    return str(value)


def _offsets(value: object) -> Mapping[str, Mapping[str, int]] | None:
    if not isinstance(value, dict):
        return None
    found: dict[str, dict[str, int]] = {}
    for stream, partitions in value.items():
        if not isinstance(partitions, dict):
            return None
        found[stream] = {str(name): one for name, one in partitions.items() if _count(one) is not None}
    return found


def _shortened(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else f"…{text[1 - MESSAGE_CHARACTERS_MAX :]}"
