"""K2: whether a broker is ready, as `/readyz` says.

It is once it is registered and every partition that the image places on it leads, has caught up with its
leader since this start, or cannot. From then on it stays ready until it stops, whatever becomes of
sessions or in-sync sets: whoever restarts brokers one after the other waits for each, and nobody is
helped if a cluster in trouble loses its addresses, too.

A follower has caught up when the image counts it as in sync and the leader of now has told it, in this
run, how much is committed, and it has that. In-sync alone is not enough: the image may say that of the
run before. What the leader tells is not, either: a new one may know of less than is committed (R15), and
takes in nobody before it does (R4).

Nothing is kept for each partition while nobody asks. Neighbour: `api.http` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.hosting.hosted_partitions import HostedPartitions


class Readiness:
    """Whether one broker is ready (K2). Of one event loop."""

    def __init__(self, broker_id: int, hosted: HostedPartitions, image: Callable[[], ClusterImage]) -> None:
        self._broker_id = broker_id
        self._hosted = hosted
        self._image = image
        self._began = False
        self._ready = False
        self._ended = ""
        """Why it is not ready any more."""
        self._done: set[tuple[bytes, int]] = set()
        """The partitions that had led or caught up when somebody asked."""

    def __repr__(self) -> str:
        return f"<Readiness {self.reason() or 'ready'}>"

    def begin(self) -> None:
        """The broker is registered, and serves what the image places on it from now on."""
        self._began = True

    def end(self, reason: str) -> None:
        """It is not ready any more, nor will it be."""
        self._ended = reason

    def reason(self) -> str | None:
        """Why the broker is not ready; None: it is."""
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
        """Whether the broker is to wait for it: others say themselves why they cannot."""
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
