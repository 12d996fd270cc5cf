"""Suspects: replicas that may lack acknowledged records. Marked on disk, reported, then unmarked (R6).

The broker reports suspects when it registers. The mark is on disk before this run saves the kernel's boot id
as its own, so if the start is interrupted, the next start finds it. It stays until the image shows
the registration that reported it. Neighbours: `storage.log.recovery` marks a log whose cut tail held whole
batches, `image_follower` opens logs and sees images, `service` registers.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model import Durability
from tidelog_broker.core.metadata.commands import Suspect
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.storage.log.partition_log import PartitionLog

Logs = Mapping[tuple[bytes, int], PartitionLog]
"""The logs by stream id and partition."""

UNFLUSHED = (
    "the last run ended without a flush, because the machine stopped or the disk failed: "
    "records that were acknowledged from the page cache may be lost"
)


def mark_page_cache(image: ClusterImage, logs: Logs) -> None:
    """Durably marks the logs of `page-cache` streams as such (R17), because earlier versions did not mark the
    logs that they made. Raises OSError."""
    for (stream_id, _), one in logs.items():
        if image.streams[stream_id].config.durability is Durability.PAGE_CACHE:
            one.mark_page_cache()


def mark_unflushed(image: ClusterImage, logs: Logs) -> None:
    """Marks logs as suspect that may lack acknowledged records after a power loss or a failed flush; durably.

    These are the logs of `page-cache` streams, and of streams that were `page-cache` before and whose logs
    were not flushed as a whole since (R17). To be called unless the page cache of the last run still exists:
    after a boot of the kernel, or when `recover` made the directory forget the boot
    (`DataDirectory.forget_boot`). After a clean stop a log lacks nothing. It does not matter here whether a
    partition has other replicas: the image at a start may be older than the cluster's. Raises OSError.
    """
    for (stream_id, _), one in logs.items():
        set_so = image.streams[stream_id].config.durability is Durability.PAGE_CACHE
        if one.recovered and (set_so or one.page_cache):
            one.mark_suspect(UNFLUSHED)


class Suspects:
    """The suspects that a start found, until the cluster knows of them."""

    def __init__(self) -> None:
        self._told: dict[tuple[bytes, int], PartitionLog] = {}
        """The suspects that the registration of this run reports."""

    def __repr__(self) -> str:
        return f"<Suspects told={len(self._told)}>"

    def tell(self, logs: Logs) -> tuple[Suspect, ...]:
        """Returns the suspects to report in the registration of this run."""
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
        """Returns, once, the logs whose mark can be removed because the image shows the registration."""
        told, self._told = self._told, {}
        return list(told.values())
