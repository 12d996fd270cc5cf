"""The gauges of a broker, read from its parts at each scrape (DESIGN section 14), and its debug state.

Neighbours: `metrics` has the counters of events, and exports gauges and counters to Prometheus;
`append_counter` counts appends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidelog.model import id_text
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.hosting.hosted_partitions import HostedPartitions
from tidelog_broker.limits.answer_room import AnswerRoom
from tidelog_broker.limits.checks import Checks
from tidelog_broker.limits.decoding import Decoding
from tidelog_broker.limits.projections import Projections
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.metrics import Sample
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.tls.following import FollowedFiles
from tidelog_broker.upkeep.age_retention import AgeRetention
from tidelog_broker.writing.flush_rounds import FlushRounds
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.write_rounds import WriteRounds


def broker_samples(
    hosted: HostedPartitions,
    rounds: WriteRounds,
    flushes: FlushRounds,
    store: LogStore,
    metadata_version: int,
) -> Iterator[Sample]:
    yield "tidelog_partitions", "Partitions on this broker.", (), len(hosted.served)
    yield "tidelog_lost_partitions", "Partitions without a usable log.", (), len(hosted.lost)
    yield "tidelog_halted_partitions", "Partitions that failed in this run.", (), len(hosted.halted)
    yield "tidelog_stray_folders", "Folders that belong to no partition.", (), len(hosted.strays)
    yield "tidelog_write_rounds", "Write rounds since the start.", (), rounds.rounds
    yield "tidelog_inline_write_rounds", "Write rounds on the event loop.", (), rounds.inline_rounds
    yield "tidelog_flush_rounds", "Flush rounds since the start.", (), flushes.rounds
    yield "tidelog_syncfs_rounds", "Flush rounds by one syncfs.", (), flushes.whole_rounds
    yield "tidelog_flush_waiting", "Partitions that wait for a flush round.", (), flushes.waiting
    yield "tidelog_tail_cache_bytes", "Recent batches in memory.", (), store.cache.bytes
    yield "tidelog_open_files", "Log files kept open.", (), len(store.files)
    yield "tidelog_metadata_version", "Version of the image.", (), metadata_version
    for partition in list(hosted.served.values()):
        yield from partition_samples(partition)


def clock_samples(clock: ClusterClock, retention: AgeRetention) -> Iterator[Sample]:
    ahead, held, behind = clock.ahead_us / 1e6, clock.held_us / 1e6, retention.behind_us / 1e6
    yield "tidelog_clock_skew_seconds", "How far the cluster's clock is ahead of this one.", (), ahead
    yield "tidelog_append_time_held_seconds", "How far this clock is ahead of append times.", (), held
    yield "tidelog_retention_behind_seconds", "How far retention by age is behind the clock.", (), behind
    dated_ahead = retention.dated_ahead
    yield "tidelog_dated_ahead_partitions", "Partitions led here with segments dated ahead.", (), dated_ahead


def tls_samples(files: Sequence[FollowedFiles]) -> Iterator[Sample]:
    if not files:
        return
    yield (
        "tidelog_certificate_expiration_timestamp_seconds",
        "When the certificate of this broker expires, or its authority, whichever is first; Unix time.",
        (),
        min(one.last.expires for one in files),
    )
    yield (
        "tidelog_certificate_files_unusable",
        "Whether TLS files have changed and cannot be used (1) or not (0).",
        (),
        float(any(one.unusable for one in files)),
    )


def load_samples(
    decoding: Decoding, projections: Projections, answers: AnswerRoom, checks: Checks
) -> Iterator[Sample]:
    yield "tidelog_decoded_bytes", "Bytes leased by readers of plain records.", (), decoding.bytes
    yield "tidelog_decode_waiting", "Readers of plain records that wait for room.", (), decoding.waiting
    filtering = projections.budget
    yield "tidelog_projection_bytes", "Bytes leased by readers of projections.", (), filtering.used
    yield "tidelog_projection_waiting", "Readers of projections that wait for room.", (), filtering.waiting
    yield "tidelog_answer_bytes", "Bytes of answers that readers have not taken.", (), answers.used
    yield "tidelog_answer_waiting", "Readers of large batches that wait for room.", (), answers.waiting
    yield "tidelog_validation_queued_bytes", "Bytes that wait to be checked.", (), checks.queued_bytes


def partition_samples(partition: Partition) -> Iterator[Sample]:
    labels = (("stream", partition.name), ("partition", str(partition.partition)))
    one = partition.log
    yield "tidelog_log_end_offset", "LEO.", labels, one.end_offset
    yield "tidelog_high_watermark", "HW.", labels, partition.high_watermark
    yield "tidelog_log_start_offset", "LSO.", labels, one.start_offset
    yield "tidelog_durable_offset", "Everything below is on disk.", labels, one.durable_offset
    yield "tidelog_log_bytes", "Bytes on disk.", labels, one.bytes
    yield "tidelog_isr_size", "In-sync replicas.", labels, partition.replica.isr_size
    yield "tidelog_queued_bytes", "Bytes that wait to be written.", labels, partition.queued_bytes
    yield "tidelog_uncommitted", "Appends that wait for their commit.", labels, partition.uncommitted
    yield "tidelog_damaged_ranges", "Offset ranges that cannot be read.", labels, len(one.damaged)
    yield "tidelog_suspect", "1 if recovery cut a valid batch.", labels, int(one.suspect)


def broker_state(
    broker_id: int,
    image: ClusterImage,
    hosted: HostedPartitions,
    rounds: WriteRounds,
    flushes: FlushRounds,
    *,
    ready: str,
    clocks: dict[str, str],
) -> dict[str, Any]:
    """The state of the broker as it knows it, for /debug/state."""
    return {
        "broker_id": broker_id,
        "cluster_id": id_text(image.cluster_id),
        "metadata_version": image.version,
        "ready": ready,
        **clocks,
        "write_rounds": rounds.rounds,
        "flush_rounds": flushes.rounds,
        "syncfs_rounds": flushes.whole_rounds,
        "partitions": [repr(partition) for partition in hosted.served.values()],
        "lost": {f"{id_text(key[0])}/{key[1]}": reason for key, reason in hosted.lost.items()},
        "strays": hosted.strays,
    }
