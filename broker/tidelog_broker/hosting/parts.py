"""Creates the parts of a broker, each with its threads, limits and metrics.

Neighbour: `broker` puts the parts together.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tidelog_broker.hosting.broker_limits import BrokerLimits
from tidelog_broker.hosting.threads import Threads
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.metrics import Metrics
from tidelog_broker.quorum.controller import Controller
from tidelog_broker.replication.links import OnRange, ReplicaLinks
from tidelog_broker.replication.peers import Peers
from tidelog_broker.replication.replica import Key, Replica
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.upkeep.healer import Healer
from tidelog_broker.upkeep.scrubber import Scrubber
from tidelog_broker.writing.append_counter import AppendCounter
from tidelog_broker.writing.flush_rounds import Fail, FlushRounds, Isolate
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.write_rounds import WriteRounds


def make_flush_rounds(
    store: LogStore, threads: Threads, limits: BrokerLimits, metrics: Metrics, fail: Fail, isolate: Isolate
) -> FlushRounds:
    return FlushRounds(
        store,
        threads.flush_lead,
        threads.flush_files,
        fail,
        isolate,
        metrics.flush_seconds.observe,
        syncfs_dirty_bytes_max=limits.syncfs_dirty_bytes_max,
    )


def make_write_rounds(
    threads: Threads,
    flushes: FlushRounds,
    clock: ClusterClock,
    metrics: Metrics,
    fail: Fail,
    isolate: Isolate,
) -> WriteRounds:
    return WriteRounds(
        threads.write, flushes, clock.append_us, clock.elapsed, fail, isolate, AppendCounter(metrics).count
    )


def make_scrubber(
    partitions: Mapping[Key, Partition], threads: Threads, limits: BrokerLimits, metrics: Metrics
) -> Scrubber | None:
    """The scrubber, or None if the limits turn scrubbing off."""
    if not limits.scrub_bytes_per_second:
        return None
    return Scrubber(
        partitions,
        threads.scrub,
        bytes_per_second=limits.scrub_bytes_per_second,
        interval=limits.scrub_interval,
        read=metrics.scrubbed_bytes.inc,
    )


def make_healer(
    partitions: Mapping[Key, Partition],
    store: LogStore,
    rounds: WriteRounds,
    flushes: FlushRounds,
    threads: Threads,
    metrics: Metrics,
    fail: Fail,
) -> Healer:
    return Healer(
        partitions,
        store.files.damaged_folders,
        rounds,
        flushes,
        reads=threads.catch_up,
        heals=threads.scrub,
        fail=fail,
        healed=metrics.healed_ranges.inc,
    )


def make_links(
    peers: Peers,
    replicas: Mapping[Key, Replica],
    controller: Controller,
    threads: Threads,
    limits: BrokerLimits,
    rng: random.Random,
    on_range: OnRange,
) -> ReplicaLinks:
    """The connections for replication; the image sets their bandwidth for catching up."""

    def leader_epoch(key: Key) -> int:
        placed = controller.image.partition(*key)
        return 0 if placed is None else placed.leader_epoch

    links = ReplicaLinks(
        peers,
        replicas,
        leader_epoch,
        threads.catch_up,
        rng,
        on_range,
        catch_up_bytes_per_second=limits.catch_up_bytes_per_second,
    )
    controller.watch(lambda old, new: links.throttle(new.throttle_bytes_per_second))
    links.throttle(controller.image.throttle_bytes_per_second)
    return links
