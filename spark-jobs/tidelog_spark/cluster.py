"""The requests of the data source to brokers, with one client per process and cluster.

Spark reuses its Python processes for many tasks, so the tasks share the connections (`of`). Nothing here
depends on Spark.
"""

from __future__ import annotations

import atexit
import gc
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tidelog import ReaderOptions, blocking
from tidelog.errors import InvalidRequest, StreamNotFound, TidelogError
from tidelog.large_blocks import keep_large_blocks
from tidelog.model import FoundPositions, Position
from tidelog.reader import Start
from tidelog_spark.offsets import Range
from tidelog_spark.options import Retries
from tidelog_spark.servers import SERVERS, TLS, TOKEN_FILE, Servers

T = TypeVar("T")

INTERNAL_PREFIX: Final = "__"
"""Names of streams that belong to Tidelog itself. A pattern never chooses them."""

KEPT_HEAP_BYTES_MAX: Final = 64 << 20
"""Free memory that a process keeps for the next batches."""

log = logging.getLogger(__name__)

_OPTIONS: Final = {"tls": TLS, "token": TOKEN_FILE, "token_file": TOKEN_FILE}
"""The option behind an argument of the client."""

_clusters: dict[Servers, Cluster] = {}


def of(servers: Servers) -> Cluster:
    """This process's client of the cluster at `servers`; connects the first time."""
    known = _clusters.get(servers)
    if known is None:
        known = _clusters[servers] = Cluster(servers)
        # Spark collects garbage in its Python processes after each task. Without this, each collection
        # goes through every imported module, which is a fifth of the CPU time of a read.
        gc.collect()
        gc.freeze()
        keep_large_blocks(KEPT_HEAP_BYTES_MAX)
    return known


@atexit.register
def close_all() -> None:
    """Closes the connections of this process."""
    while _clusters:
        _clusters.popitem()[1].close()


class Cluster:
    """A connected client of one cluster."""

    def __init__(self, servers: Servers) -> None:
        """Raises `InvalidRequest` for an address that is none or files that cannot be used, and
        `Unavailable` if no broker answers."""
        self._servers = servers.addresses
        try:
            self._client = blocking.connect(servers.addresses, tls=servers.tls, token_file=servers.token_file)
        except InvalidRequest as error:
            option = _OPTIONS.get(error.details.get("argument", ""), SERVERS)
            raise InvalidRequest(f"{option}: {error.message}") from None

    def __repr__(self) -> str:
        return f"<Cluster {','.join(self._servers)}>"

    def close(self) -> None:
        self._client.close()

    def sink(self, stream: str) -> blocking.Sink:
        """A sink that writes to a stream."""
        return self._client.sink(stream)

    def check_stream(self, stream: str, option: str) -> None:
        """Raises `StreamNotFound` if there is no stream with the name that `option` gives."""
        try:
            self._client.describe_stream(stream)
        except StreamNotFound:
            raise no_stream(stream, option) from None

    def streams_matching(self, pattern: str, retries: Retries) -> tuple[str, ...]:
        """The names of the streams that match `pattern` (RE2) as a whole, sorted; never internal streams.

        Raises `InvalidRequest` if the pattern is not a regular expression.
        """
        try:
            found = _repeated(lambda: self._client.list_streams(pattern), retries)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"subscribePattern: {error.message}; give a regular expression of RE2, for example "
                "'orders[.].*'"
            ) from None
        return tuple(sorted(stream.name for stream in found if not stream.name.startswith(INTERNAL_PREFIX)))

    def find(
        self, starts: Mapping[str, Start | Mapping[int, Start]], retries: Retries
    ) -> dict[str, FoundPositions]:
        """The positions of starts in many partitions, with one round of requests; none without starts."""
        if not starts:
            return {}
        return _repeated(lambda: self._client.find_positions(starts), retries)

    def reader(self, piece: Range, start: Position, retries: Retries, **pruning: Any) -> blocking.Reader:
        """A reader of `piece` from `start` on, up to the high watermark. Close it, or use it with ``with``.

        Its batches raise `StreamNotFound` if the stream of the range was deleted. `pruning`: columns and
        filters (`tidelog.client.Client.reader`).
        """
        return self._client.reader(
            piece.key.stream,
            start={piece.key.partition: start},
            end=piece.end.offset,
            partitions=[piece.key.partition],
            stream_id=piece.stream_id,
            options=ReaderOptions(follow=False, retry_timeout_s=retries.fetch_timeout_s),
            **pruning,
        )


def no_stream(name: str, option: str) -> StreamNotFound:
    """The error for a stream that `option` names and that does not exist."""
    return StreamNotFound(
        f"there is no stream {name}; create it, or correct the name in {option}", stream=name
    )


def _repeated(request: Callable[[], T], retries: Retries) -> T:
    """The answer to a request of the planner, which is repeated after retriable errors (`Retries`)."""
    for left in range(retries.times, -1, -1):
        try:
            return request()
        except TidelogError as error:
            if not error.retriable or left == 0:
                raise
            log.warning("the offsets of the streams cannot be read now (%d more attempts): %s", left, error)
            time.sleep(retries.interval_s)
    raise AssertionError("the last attempt returns or raises")
