"""`connect` and the client, which makes producers and readers and closes them when it is closed."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self
from weakref import WeakKeyDictionary

from tidelog._arguments import as_projection, check_str, wrong_type
from tidelog._connecting.broker_channel import BrokerChannel, Dial
from tidelog._connecting.channels import Channels
from tidelog._connecting.hedging import first_contact
from tidelog._connecting.metadata import Metadata
from tidelog._connecting.tls import Credentials
from tidelog._connecting.tokens import Token
from tidelog._options import ClientOptions, ProducerOptions, ReaderOptions
from tidelog.access_admin import AccessAdmin
from tidelog.cluster_admin import ClusterAdmin
from tidelog.errors import InvalidRequest, StreamNotFound
from tidelog.model import Position, id_text
from tidelog.producer import Producer
from tidelog.reader import End, Reader, Start
from tidelog.sink import Sink


def connect(
    addresses: str | Sequence[str], *, options: ClientOptions | None = None, **settings: Any
) -> Client:
    """A client of the cluster that the brokers at `addresses` belong to.

    Addresses are given as ``"a:9210,b:9210,c:9210"`` or as a sequence. One broker that answers is
    enough: the client learns the other brokers from it. Use the client with ``async with``, or await it
    and close it in the same event loop. It raises `Unavailable` if no broker answers within
    `connect_timeout_s`; the error names each address and its failure. `settings` are fields of
    `ClientOptions`, as an alternative to `options`.
    """
    if options is not None and settings:
        raise InvalidRequest(f"give either `options`, or {', '.join(sorted(settings))}")
    chosen = options or ClientOptions(**settings)
    return Client(addresses, chosen)


class Client(AccessAdmin, ClusterAdmin):
    """A client of a cluster, made by `connect`. All its parts belong to one event loop."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        options: ClientOptions,
        dial: Dial | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`dial` makes the channel to an address; None: gRPC does. `rng`: randomness for the pauses between
        attempts; None: seeded by the operating system."""
        rng = rng or random.Random()
        channels = Channels(
            addresses,
            request_timeout_s=options.request_timeout_s,
            listener=options.listener,
            dial=dial,
            tls=None if options.tls is None else Credentials(options.tls),
            token=Token(options.token, options.token_file) if options.token or options.token_file else None,
        )
        metadata = Metadata(channels, timeout_s=options.retry_timeout_s, policy=options.retry, rng=rng)
        super().__init__(channels, metadata, options, rng)
        self._producers: WeakKeyDictionary[Producer, None] = WeakKeyDictionary()
        self._readers: WeakKeyDictionary[Reader, None] = WeakKeyDictionary()
        self._connected = False

    def __repr__(self) -> str:
        return f"<Client {','.join(self._channels.bootstrap)}>"

    def dial(self, address: str) -> BrokerChannel:
        """A channel to one broker, for tools that ask a certain broker; the caller closes it."""
        return self._channels.dial(address)

    def producer(
        self,
        stream: str,
        *,
        acks: Literal["all", "leader", "none"] = "all",
        idempotent: bool = True,
        compression: Literal["none", "lz4", "zstd"] = "none",
        linger_ms: float = 5.0,
        options: ProducerOptions | None = None,
    ) -> Producer:
        """A producer for one stream. `options` has more settings; give it instead of the other arguments."""
        given = ProducerOptions(
            acks=acks, idempotent=idempotent, compression=compression, linger_ms=linger_ms
        )
        if options is not None and given != ProducerOptions():
            raise InvalidRequest("give either `options`, or acks, idempotent, compression and linger_ms")
        chosen = given if options is None else options
        if not isinstance(chosen, ProducerOptions):
            raise wrong_type("options", options, "ProducerOptions")
        check_str("stream", stream)
        producer = Producer(stream, self._channels, self._metadata, chosen, self._rng)
        self._producers[producer] = None
        return producer

    def reader(
        self,
        stream: str,
        *,
        start: Start | Mapping[int, Start] = "earliest",
        end: End | Mapping[int, End] | None = None,
        partitions: Sequence[int] | None = None,
        stream_id: bytes | None = None,
        follow: bool = True,
        on_truncated: Literal["error", "rewind", "earliest", "latest"] = "error",
        columns: Sequence[str] | None = None,
        subject_filter: str | Sequence[str] | None = None,
        keys: Sequence[bytes] | None = None,
        options: ReaderOptions | None = None,
    ) -> Reader:
        """A reader of one stream.

        `start` is "earliest", "latest", an offset, a `Position`, a datetime with a time zone, `AfterBytes`,
        or a mapping of partitions to these. `end` is the first offset not to read, "latest", a
        datetime, or a mapping. A datetime means the first record with this timestamp or a later one.
        `partitions` limits the reader to these. Give `stream_id` together with saved positions: if the
        stream was deleted and created again, the reader raises `StreamNotFound` instead of reading the new
        one.
        Without `follow` it stops at the high watermark that it finds at the start. `options` has more
        settings; give it instead of `follow` and `on_truncated`.

        The broker sends only what is wanted: `columns` names some of key, value, headers, subject, timestamp
        and offset. `subject_filter` is a NATS subject with wildcards, or some of them: only records whose
        subject matches one of them are sent. `keys`: only records with one of these keys are sent. A reader
        with `columns` gives batches, no single records.
        """
        given = ReaderOptions(follow=follow, on_truncated=on_truncated)
        if options is not None and given != ReaderOptions():
            raise InvalidRequest("give either `options`, or follow and on_truncated")
        chosen = given if options is None else options
        if not isinstance(chosen, ReaderOptions):
            raise wrong_type("options", options, "ReaderOptions")
        reader = Reader(
            stream,
            self._channels,
            self._metadata,
            chosen,
            self._rng,
            start=start,
            end=end,
            partitions=partitions,
            stream_id=stream_id,
            projection=as_projection(columns, subject_filter, keys),
        )
        self._readers[reader] = None
        return reader

    def sink(self, stream: str) -> Sink:
        """A sink of a job that repeats its work after failures, and writes to one stream."""
        check_str("stream", stream)
        return Sink(stream, self._channels, self._metadata, self._options, self._rng)

    async def positions(
        self, stream: str, starts: Mapping[int, Start], *, stream_id: bytes | None = None
    ) -> dict[int, Position]:
        """What each start means now, by partition, with the epoch of the record before it if there is one.

        `starts` and `stream_id` are as for `reader`. Nothing is read. Raises `OffsetOutOfRange` or
        `LogTruncated` for a position that the log does not have.
        """
        found = (await self.find_positions({stream: starts})).get(stream)
        if found is None or (stream_id is not None and found.stream_id != stream_id):
            which = stream if stream_id is None else f"{stream} with id {id_text(stream_id)}"
            raise StreamNotFound(f"there is no stream {which}", stream=stream)
        for error in found.errors.values():
            raise error
        return {number: place.position for number, place in found.positions.items()}

    async def open(self) -> Self:
        """Connects to the first broker that answers; ``async with`` and ``await`` call it."""
        if not self._connected:
            try:
                seeds = [self._channels.to(address) for address in self._channels.bootstrap]
                timeout_s, policy = self._options.connect_timeout_s, self._options.retry
                self._channels.prefer(await first_contact(seeds, timeout_s, policy, self._rng))
            except BaseException:
                await self._channels.close()
                raise
            self._connected = True
        return self

    async def close(self) -> None:
        """Closes the readers, aborts producers that are not closed, and closes the connections."""
        for reader in list(self._readers):
            await reader.aclose()
        for producer in list(self._producers):
            await producer.abort()
        await self._metadata.close()
        await self._channels.close()
        self._connected = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
