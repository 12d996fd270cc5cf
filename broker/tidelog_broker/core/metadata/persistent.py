"""A persistent map: old versions stay unchanged, and new versions are cheap (M4).

The keys are in a fixed number of buckets, plain dicts that are never changed once a map
holds them; a new version copies the bucket of the changed key and the tuple of all
buckets. At 5,000 keys that is 20 entries instead of 5,000, and a comparison of two versions
reads only buckets that are not the same object.

Buckets are chosen by CRC-32, not by `hash`, so that iteration has the same order in
every process.
"""

from __future__ import annotations

import zlib
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, TypeVar

K = TypeVar("K", bound=bytes | str)
V = TypeVar("V")

BUCKETS = 256
_EMPTY: dict[Any, Any] = {}
_NO_BUCKETS: tuple[dict[Any, Any], ...] = (_EMPTY,) * BUCKETS


def _bucket(key: bytes | str) -> int:
    return zlib.crc32(key if isinstance(key, bytes) else key.encode()) % BUCKETS


class PersistentMap(Mapping[K, V]):
    """A `Mapping` with `set`, `remove` and `update`, which return another map."""

    __slots__ = ("_buckets", "_count")

    def __init__(self) -> None:
        self._buckets: tuple[dict[K, V], ...] = _NO_BUCKETS
        self._count = 0

    @classmethod
    def of(cls, entries: Mapping[K, V]) -> PersistentMap[K, V]:
        return cls().update(entries)

    def __getitem__(self, key: K) -> V:
        return self._buckets[_bucket(key)][key]

    def find(self, key: K) -> V | None:
        """Like `get`, but without the cost of an exception for a missing key."""
        return self._buckets[_bucket(key)].get(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes | str) and key in self._buckets[_bucket(key)]

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __repr__(self) -> str:
        return f"<PersistentMap of {self._count}>"

    def set(self, key: K, value: V) -> PersistentMap[K, V]:
        return self.update({key: value})

    def remove(self, key: K) -> PersistentMap[K, V]:
        """The map without `key`; the same map if it has no such key."""
        number = _bucket(key)
        if key not in self._buckets[number]:
            return self
        buckets = list(self._buckets)
        buckets[number] = {other: value for other, value in buckets[number].items() if other != key}
        after: PersistentMap[K, V] = PersistentMap()
        after._buckets = tuple(buckets)
        after._count = self._count - 1
        return after

    def update(self, entries: Mapping[K, V]) -> PersistentMap[K, V]:
        """The map with all of `entries`; each bucket is copied once."""
        if not entries:
            return self
        copied: dict[int, dict[K, V]] = {}
        for key, value in entries.items():
            number = _bucket(key)
            bucket = copied.get(number)
            if bucket is None:
                bucket = copied[number] = dict(self._buckets[number])
            bucket[key] = value
        after: PersistentMap[K, V] = PersistentMap()
        buckets = list(self._buckets)
        grown = 0
        for number, bucket in copied.items():
            grown += len(bucket) - len(buckets[number])
            buckets[number] = bucket
        after._buckets = tuple(buckets)
        after._count = self._count + grown
        return after

    def changes(self, old: PersistentMap[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
        """Keys whose value is not the same object as in `old`: key, value there, value here."""
        for before, after in zip(old._buckets, self._buckets, strict=True):
            if before is after:
                continue
            for key, value in after.items():
                was = before.get(key)
                if was is not value:
                    yield key, was, value
            for key, value in before.items():
                if key not in after:
                    yield key, value, None


class _Items(ItemsView[K, V]):
    """`items` by bucket: a lookup for each key would cost more than the walk."""

    _mapping: PersistentMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for bucket in self._mapping._buckets:
            yield from bucket.items()


class _Values(ValuesView[V]):
    """`values` by bucket, likewise."""

    _mapping: PersistentMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        for bucket in self._mapping._buckets:
            yield from bucket.values()
