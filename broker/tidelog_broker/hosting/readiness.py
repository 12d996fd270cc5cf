"""Says whether a broker is ready, for `/readyz` (K2).

A broker is ready once it is registered and each of its replicas leads, has caught up with its leader since
this start, or cannot catch up. It then stays ready until it stops, even if it loses its session or leaves
an ISR: a rolling restart waits until each broker is ready again, and a cluster in trouble must not lose its
addresses, too.

A follower has caught up when two things hold: the image counts it as in sync, and it has all records that the
current leader reported as committed in this run. To be in sync is not enough: the image may say so about the
run before. The leader's report alone is not enough either: a new leader may know of fewer records than are
committed (R15), and adds no follower to the ISR before it knows of all (R4).

No state is kept per partition until readiness is asked for. Neighbour: `api.http` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.hosting.hosted_partitions import HostedPartitions


class Readiness:
    """Whether one broker is ready (K2). Runs on one event loop."""

    def __init__(self, broker_id: int, hosted: HostedPartitions, image: Callable[[], ClusterImage]) -> None:
        self._broker_id = broker_id
        self._hosted = hosted
        self._image = image
        self._began = False
        self._ready = False
        self._ended = ""
        """The reason why the broker is no longer ready; empty: it has not ended."""
        self._done: set[tuple[bytes, int]] = set()
        """The partitions that led or had caught up at an earlier request."""

    def __repr__(self) -> str:
        return f"<Readiness {self.reason() or 'ready'}>"

    def begin(self) -> None:
        """The broker is registered, and serves its partitions in the image from now on."""
        self._began = True

    def end(self, reason: str) -> None:
        """The broker is no longer ready, and will not be ready again in this run."""
        self._ended = reason

    def reason(self) -> str | None:
        """The reason why the broker is not ready; None: it is ready."""
        if self._ended:
            return self._ended
        if not self._began:
            return "starting"
        if not self._ready:
            behind = list(self._behind())
            if behind:
                return f"{len(behind)} of the partitions here have not caught up yet, such as {behind[0]}"
            self._ready = True
            self._done.clear()
        return None

    def _behind(self) -> Iterator[str]:
        for stream in self._image().streams.values():
            for number, placed in enumerate(stream.partitions):
                key = (stream.id, number)
                if key in self._done or not self._counts(key, placed):
                    continue
                if self._has_caught_up(key, placed):
                    self._done.add(key)
                else:
                    yield f"{stream.name}/{number}"

    def _counts(self, key: tuple[bytes, int], placed: PartitionImage) -> bool:
        """Whether readiness waits for this partition; lost and damaged replicas are reported elsewhere."""
        mine = self._broker_id in placed.replicas and self._broker_id not in placed.adding
        if not mine or placed.leader is None or key in self._hosted.lost:
            return False
        partition = self._hosted.served.get(key)
        return partition is None or not partition.log.damaged

    def _has_caught_up(self, key: tuple[bytes, int], placed: PartitionImage) -> bool:
        partition = self._hosted.served.get(key)
        if partition is None:
            return False
        if partition.leads:
            return True
        role, of_now = partition.replica.role, partition.leader_epoch == placed.leader_epoch
        return (
            of_now
            and isinstance(role, FollowerPartition)
            and role.caught_up
            and self._broker_id in placed.isr
        )
