"""Administration of streams: the Admin service with the model's values.

Every request goes to any broker that answers. It is repeated after retriable errors; after indefinite
errors only if executing it twice has the same effect as once. `cluster_admin` adds brokers and replicas.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from tidelog import wire
from tidelog._arguments import check_bool, wrong_type
from tidelog._connecting.broker_channel import BrokerChannel
from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._connecting.retry import retrying
from tidelog._options import ClientOptions
from tidelog._reading.find_positions import PositionSearch, Starts
from tidelog.errors import InvalidRequest, StreamNotFound
from tidelog.model import (
    Durability,
    FoundPositions,
    NatsAck,
    Retention,
    StreamDescription,
    StreamSettings,
    validate_config,
    validate_labels,
    validate_owner,
    validate_stream_name,
)
from tidelog.model import StreamConfig as _Defaults
from tidelog_proto import admin_pb2, log_pb2

T = TypeVar("T")

LIST_PAGE_SIZE: Final = 500


class Admin:
    """The part of a client that creates, changes, describes and deletes streams."""

    def __init__(
        self, channels: Channels, metadata: Metadata, options: ClientOptions, rng: random.Random
    ) -> None:
        self._channels = channels
        self._metadata = metadata
        self._options = options
        self._rng = rng

    async def create_stream(
        self,
        name: str,
        *,
        subject: str | None = None,
        partitions: int | None = None,
        replication_factor: int | None = None,
        min_insync_replicas: int | None = None,
        durability: Durability | str | None = None,
        retention: Retention | None = None,
        settings: StreamSettings | None = None,
        labels: Mapping[str, str] | None = None,
        owner: str = "",
        replicas: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> StreamDescription:
        """Creates a stream. A stream that exists with the same settings is success, too.

        The most used settings are parameters, `settings` has all of them; a setting that is not given has
        its default (`StreamConfig`). Raises `StreamExists` if the stream exists with other settings or
        another owner, and `InvalidRequest` with the reason for values that are not allowed. `validate_only`
        checks everything and changes nothing.

        `owner` claims the stream. `replicas` are the broker ids of each partition, the preferred leader
        first; empty: the cluster chooses.
        """
        validate_stream_name(name)
        check_bool("validate_only", validate_only)
        validate_labels(labels or {})
        validate_owner(owner)
        wanted = _merged(
            settings,
            subject=subject,
            partitions=partitions,
            replication_factor=replication_factor,
            min_insync_replicas=min_insync_replicas,
            durability=durability,
            retention=retention,
        )
        validate_config(wanted.on(_Defaults()))
        request = admin_pb2.CreateStreamRequest(
            name=name,
            config=wire.settings_to_proto(wanted),
            labels=dict(labels or {}),
            owner=owner,
            replicas=_replicas(replicas),
            validate_only=validate_only,
        )

        async def create(channel: BrokerChannel) -> admin_pb2.CreateStreamResponse:
            return await channel.admin.CreateStream(request, timeout=self._options.request_timeout_s)

        answer = await self._call(create, repeat_indefinite=True)
        return wire.stream_from_proto(answer.stream)

    async def alter_stream(
        self,
        name: str,
        *,
        subject: str | None = None,
        partitions: int | None = None,
        replication_factor: int | None = None,
        min_insync_replicas: int | None = None,
        durability: Durability | str | None = None,
        retention: Retention | None = None,
        settings: StreamSettings | None = None,
        owner: str | None = None,
        new_replicas: Sequence[Sequence[int]] = (),
        expected_version: int | None = None,
        stream_id: bytes | None = None,
    ) -> StreamDescription:
        """Changes the given settings of a stream and leaves the others. An empty `owner` ends the claim.

        `new_replicas` are the broker ids of each partition that is added. With `expected_version` it raises
        `VersionConflict` if the stream has changed since; with `stream_id` it never changes another stream
        with the same name (`StreamNotFound`).
        """
        wanted = _merged(
            settings,
            subject=subject,
            partitions=partitions,
            replication_factor=replication_factor,
            min_insync_replicas=min_insync_replicas,
            durability=durability,
            retention=retention,
        )
        if not wanted.given() and owner is None:
            raise InvalidRequest(f"no setting was given for stream {name}; give at least one to change")
        request = admin_pb2.AlterStreamRequest(
            name=name,
            config=wire.settings_to_proto(wanted),
            owner=owner,
            new_replicas=_replicas(new_replicas),
            expected_version=expected_version,
            stream_id=stream_id,
        )

        async def alter(channel: BrokerChannel) -> admin_pb2.AlterStreamResponse:
            return await channel.admin.AlterStream(request, timeout=self._options.request_timeout_s)

        answer = await self._call(alter, repeat_indefinite=expected_version is None)
        self._metadata.forget(name)
        return wire.stream_from_proto(answer.stream)

    async def delete_stream(
        self, name: str, *, expected_version: int | None = None, stream_id: bytes | None = None
    ) -> bytes:
        """Deletes the stream with all its records and returns its id. Raises `StreamNotFound`."""
        request = admin_pb2.DeleteStreamRequest(
            name=name, expected_version=expected_version, stream_id=stream_id
        )

        async def delete(channel: BrokerChannel) -> admin_pb2.DeleteStreamResponse:
            return await channel.admin.DeleteStream(request, timeout=self._options.request_timeout_s)

        answer = await self._call(delete, repeat_indefinite=False)
        self._metadata.forget(name)
        return answer.stream_id

    async def describe_stream(self, name: str) -> StreamDescription:
        """The configuration, version, partitions and leaders of a stream. Raises `StreamNotFound`."""
        request = admin_pb2.DescribeStreamRequest(name=name)

        async def describe(channel: BrokerChannel) -> admin_pb2.DescribeStreamResponse:
            return await channel.admin.DescribeStream(request, timeout=self._options.request_timeout_s)

        return wire.stream_from_proto((await self._call(describe, repeat_indefinite=True)).stream)

    async def list_streams(self, pattern: str = "") -> list[StreamDescription]:
        """All streams, or those whose full name matches the regular expression `pattern` (RE2)."""
        found: list[StreamDescription] = []
        token = ""
        while True:
            request = admin_pb2.ListStreamsRequest(
                pattern=pattern, page_size=LIST_PAGE_SIZE, page_token=token
            )

            async def page(
                channel: BrokerChannel, request: admin_pb2.ListStreamsRequest = request
            ) -> admin_pb2.ListStreamsResponse:
                return await channel.admin.ListStreams(request, timeout=self._options.request_timeout_s)

            answer = await self._call(page, repeat_indefinite=True)
            found += [wire.stream_from_proto(stream) for stream in answer.streams]
            token = answer.next_page_token
            if not token:
                return found

    async def offsets(self, name: str, partitions: Sequence[int] | None = None) -> dict[int, tuple[int, int]]:
        """(log start offset, high watermark) by partition. Raises `StreamNotFound`, `PartitionNotFound`."""
        starts: Starts = "earliest" if partitions is None else dict.fromkeys(partitions, "earliest")
        found = (await self.find_positions({name: starts})).get(name)
        if found is None:
            raise StreamNotFound(f"there is no stream {name}", stream=name)
        for error in found.errors.values():
            raise error
        return {
            number: (place.log_start_offset, place.high_watermark)
            for number, place in sorted(found.positions.items())
        }

    async def find_positions(self, starts: Mapping[str, Starts]) -> dict[str, FoundPositions]:
        """The position of a start in the partitions of many streams, with one request to each leader.

        `starts` has for each stream one start for all its partitions, or a mapping of partitions to starts
        (`Client.reader` describes a start). A stream that does not exist is not in the answer. A start that
        is no position of its log is an error of its partition (`FoundPositions.errors`). Raises a retriable
        error if a leader does not answer within `retry_timeout_s`.
        """
        search = PositionSearch(self._channels, self._metadata, starts)
        return await search.run(
            timeout_s=self._options.retry_timeout_s, policy=self._options.retry, rng=self._rng
        )

    async def delete_records(self, name: str, partition: int, before_offset: int | None = None) -> int:
        """Deletes the records below an offset and returns the new log start offset.

        `before_offset` is the first offset to keep; None: the high watermark.
        """
        stream = await self._metadata.stream(name)
        request = log_pb2.DeleteRecordsRequest(
            stream_id=stream.stream_id, partition=partition, before_offset=before_offset
        )

        async def delete(channel: BrokerChannel) -> log_pb2.DeleteRecordsResponse:
            return await channel.log.DeleteRecords(request, timeout=self._options.request_timeout_s)

        answer = await self._at_leader(stream, partition, delete, repeat_indefinite=before_offset is not None)
        return answer.log_start_offset

    async def _at_leader(
        self,
        stream: StreamDescription,
        partition: int,
        call: Callable[[BrokerChannel], Awaitable[T]],
        *,
        repeat_indefinite: bool,
    ) -> T:
        tries = 0

        async def attempt() -> T:
            nonlocal stream, tries
            tries += 1
            if tries > 1:
                stream = await self._metadata.same_stream(stream.name, stream.stream_id)
            return await self._metadata.at_leader(stream, partition, call)

        return await retrying(
            attempt,
            timeout_s=self._options.retry_timeout_s,
            repeat_indefinite=repeat_indefinite,
            policy=self._options.retry,
            rng=self._rng,
            leader=True,
        )

    async def _call(self, call: Callable[[BrokerChannel], Awaitable[T]], *, repeat_indefinite: bool) -> T:
        return await retrying(
            lambda: self._channels.anywhere(call),
            timeout_s=self._options.retry_timeout_s,
            repeat_indefinite=repeat_indefinite,
            policy=self._options.retry,
            rng=self._rng,
        )


def _merged(settings: StreamSettings | None, **given: object) -> StreamSettings:
    """The settings, replaced by the given parameters; raises `InvalidRequest` for values not allowed."""
    if settings is not None and not isinstance(settings, StreamSettings):
        raise wrong_type("settings", settings, "StreamSettings")
    said = {} if settings is None else settings.given()
    said.update({name: value for name, value in given.items() if value is not None})
    for name, kind in (("durability", Durability), ("nats_ack", NatsAck)):
        value = said.get(name)
        if value is not None:
            try:
                said[name] = kind(value)  # type: ignore[arg-type]
            except ValueError:
                known = ", ".join(member.value for member in kind)
                raise InvalidRequest(f"{name} is {value!r}; it must be one of {known}", field=name) from None
    return StreamSettings(**said)  # type: ignore[arg-type]


def _replicas(given: Sequence[Sequence[int]]) -> list[admin_pb2.Replicas]:
    try:
        return [admin_pb2.Replicas(brokers=members) for members in given]
    except (ValueError, TypeError):
        raise wrong_type("replicas", given, "a list of broker ids for each partition") from None
