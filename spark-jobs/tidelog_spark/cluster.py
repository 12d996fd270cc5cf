"""The requests of the data source to brokers, with one client per process and cluster.

Spark reuses its Python processes for many tasks, so the tasks share the connections (`of`). Nothing here
depends on Spark.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelog import FetchedBatch, blocking
from tidelog.model import Position
from tidelog.reader import Start
from tidelog_spark.offsets import Range

_clusters: dict[tuple[str, ...], Cluster] = {}


def of(servers: Sequence[str]) -> Cluster:
    """This process's client of the cluster at `servers`; connects the first time."""
    known = _clusters.get(tuple(servers))
    if known is None:
        known = _clusters[tuple(servers)] = Cluster(servers)
        # Spark collects garbage in its Python processes after each task. Without this, each collection
        # goes through every imported module, which is a fifth of the CPU time of a read.
        gc.collect()
        gc.freeze()
    return known


@atexit.register
def close_all() -> None:
    """Closes the connections of this process."""
    while _clusters:
        _clusters.popitem()[1].close()


@dataclass(frozen=True, slots=True)
class StreamState:
    """The start and the end of the log of each partition of a stream."""

    name: str
    stream_id: bytes
    log_start_offsets: Mapping[int, int]
    high_watermarks: Mapping[int, int]


class Cluster:
    """A connected client of one cluster."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = tuple(servers)
        self._client = blocking.connect(list(servers))

    def __repr__(self) -> str:
        return f"<Cluster {','.join(self._servers)}>"

    def close(self) -> None:
        self._client.close()

    def sink(self, stream: str) -> blocking.Sink:
        """A sink that writes to a stream."""
        return self._client.sink(stream)

    def state(self, name: str) -> StreamState:
        """The offsets of a stream now; raises `StreamNotFound`."""
        bounds = self._client.offsets(name)
        return StreamState(
            name,
            self._client.describe_stream(name).stream_id,
            {number: start for number, (start, _) in bounds.items()},
            {number: end for number, (_, end) in bounds.items()},
        )

    def resolve(self, name: str, starts: Mapping[int, Start]) -> dict[int, Position]:
        """The position of each start now, with the epoch of the record before it if the broker knows it.

        Raises `OffsetOutOfRange` or `LogTruncated` for a position that the log does not have.
        """
        if not starts:
            return {}
        # A reader whose end lies before its start only requests the position of its start.
        with self._client.reader(
            name, start=dict(starts), end=0, partitions=sorted(starts), follow=False
        ) as reader:
            next(reader.fetched_batches(), None)
            return reader.positions

    def fetch(self, piece: Range, start: Position) -> Iterator[FetchedBatch]:
        """The batches of `piece` from `start` on, up to the high watermark."""
        with self._client.reader(
            piece.key.stream,
            start={piece.key.partition: start},
            end=piece.end.offset,
            partitions=[piece.key.partition],
            follow=False,
        ) as reader:
            yield from reader.fetched_batches()
