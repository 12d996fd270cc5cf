"""The difference between two images, which brokers and watching clients receive.

It is cheap when little changed, whatever the size of the cluster: unchanged parts of the maps
are the same objects in both images.
"""

from __future__ import annotations

import msgspec

from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, StreamImage


class ImageDelta(msgspec.Struct, frozen=True):
    """The brokers and streams that differ in a newer image."""

    version: int
    """Of the newer image."""
    brokers: tuple[BrokerImage, ...] = ()
    """New or changed brokers, by id."""
    streams: tuple[StreamImage, ...] = ()
    """New or changed streams, by id."""
    deleted: tuple[StreamImage, ...] = ()
    """Deleted streams in their last state, by id."""

    def __bool__(self) -> bool:
        return bool(self.brokers or self.streams or self.deleted)


def delta_between(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    """The changes from `old` to `new`; with an empty `old`: everything."""
    streams: list[StreamImage] = []
    deleted: list[StreamImage] = []
    for _, before, after in new.streams.changes(old.streams):
        if after is not None:
            streams.append(after)
        elif before is not None:
            deleted.append(before)
    brokers = () if new.brokers is old.brokers else new.brokers.values()
    return ImageDelta(
        version=new.version,
        brokers=tuple(broker for broker in brokers if old.brokers.get(broker.id) != broker),
        streams=tuple(sorted(streams, key=_by_id)),
        deleted=tuple(sorted(deleted, key=_by_id)),
    )


def _by_id(stream: StreamImage) -> bytes:
    return stream.id
