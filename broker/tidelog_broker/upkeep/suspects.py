"""Replicas that may lack what they acknowledged: marked on disk, told of at registration, then unmarked (R6).

The mark is on the disk before this run counts the kernel's boot as its own, so a start that dies
half-way leaves it to the next one; and it stays until the image shows the registration that told of
it. Neighbours: `storage.log.recovery` marks a log whose cut tail held whole batches, `image_follower`
opens logs and sees images, `service` registers.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model import Durability
from tidelog_broker.core.metadata.commands import Suspect
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.storage.log.partition_log import PartitionLog

Logs = Mapping[tuple[bytes, int], PartitionLog]
"""By stream id and partition."""

UNFLUSHED = (
    "the last run ended without a flush, because the machine stopped or the disk failed: "
    "what was acknowledged from the page cache may be gone"
)


def mark_page_cache(image: ClusterImage, logs: Logs) -> None:
    """Marks the logs of `page-cache` streams as such, durably (R17): those that earlier versions made are
    not. Raises OSError."""
    for (stream_id, _), one in logs.items():
        if image.streams[stream_id].config.durability is Durability.PAGE_CACHE:
            one.mark_page_cache()


def mark_unflushed(image: ClusterImage, logs: Logs) -> None:
    """Marks as suspect the logs that a power loss or a failed flush left and that may lack what counted;
    durable at the end.

    Those are of `page-cache` streams, or of streams that were and whose logs were not flushed as a whole
    since (R17). To be called unless the page cache of the last run lived until now: after a boot of the
    kernel, or when `recover` made the directory forget it (`DataDirectory.forget_boot`). A log that a clean
    stop left lacks nothing. Whether a partition has other replicas does not matter here: the image at a
    start may be older than the cluster's. Raises OSError.
    """
    for (stream_id, _), one in logs.items():
        set_so = image.streams[stream_id].config.durability is Durability.PAGE_CACHE
        if one.recovered and (set_so or one.page_cache):
            one.mark_suspect(UNFLUSHED)


class Suspects:
    """Those that a start found, until the cluster knows of them."""

    def __init__(self) -> None:
        self._told: dict[tuple[bytes, int], PartitionLog] = {}
        """Those that a registration of this run tells of."""

    def __repr__(self) -> str:
        return f"<Suspects told={len(self._told)}>"

    def tell(self, logs: Logs) -> tuple[Suspect, ...]:
        """For the registration of this run."""
        self._told = {key: logs[key] for key in sorted(logs) if logs[key].suspect}
        return tuple(
            Suspect(
                *key,
                leader_epoch=last_epoch(one) or 0,
                log_end_offset=one.end_offset,
                assignment=one.assignment,
            )
            for key, one in self._told.items()
        )

    def take_told(self) -> list[PartitionLog]:
        """Those whose mark may go, once: the image shows the registration."""
        told, self._told = self._told, {}
        return list(told.values())
