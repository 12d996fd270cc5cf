"""A stream that records a subject on this broker: what of it is led here, and where a message goes."""

from __future__ import annotations

from tidelog_broker.nats.subjects import has_wildcard, may_match_reserved
from tidelog_broker.nats.subscription import Subscription
from tidelog_broker.writing.partition import Partition

_PARTITION_CACHE_MAX = 65_536
"""Subjects of a stream whose partition is remembered."""


class Recording:
    """A stream that records its subject."""

    __slots__ = (
        "count",
        "filter_reserved",
        "led",
        "name",
        "partitions",
        "pattern",
        "places",
        "stream_id",
        "subscription",
    )

    def __init__(self, partition: Partition) -> None:
        self.name = partition.name
        self.stream_id = partition.stream_id
        self.led: dict[int, Partition] = {}
        """Those that are led here."""
        self.partitions: dict[int, Partition] = {}
        """Those of them that take messages."""
        self.count = 0
        """Of the stream's partitions, wherever they are led."""
        self.pattern = partition.config.subject.encode()
        self.filter_reserved = has_wildcard(self.pattern) and may_match_reserved(self.pattern)
        self.places: dict[bytes, int] = {}
        self.subscription: Subscription | None = None

    def partition_of(self, subject: bytes) -> Partition | None:
        """Where a message goes; None: to a partition that takes none here."""
        return self.partitions.get(self.number_of(subject))

    def number_of(self, subject: bytes) -> int:
        count = self.count
        if count == 1:
            return 0
        number = self.places.get(subject)
        if number is None:
            if len(self.places) >= _PARTITION_CACHE_MAX:
                self.places.clear()
            number = self.places[subject] = fnv1a_32(subject) % count
        return number


def fnv1a_32(data: bytes) -> int:
    """The hash of NATS's own `partition()` subject mapping."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value
