"""A call as services see it, independent of gRPC: answers, errors, and the order of reading and writing.

A `Caller` is one call as the door sees it: gRPC's context in a broker, a double of it in the simulator.
Neighbours: `grpc_door` serves calls, `status` turns errors into answers for clients.

A service is an object with one method per rpc, by its name in snake case:

- unary: ``async def publish(request) -> response``
- server stream: ``def fetch(request) -> AsyncGenerator[response]``
- both streams: ``def produce(send) -> call`` with ``receive(request)``, ``full``,
  ``unanswered`` and ``until(condition)``

A service may name parsers of its own for some requests: ``request_parsers``, by rpc. All others are parsed by
protobuf, on the event loop, and are small.

They raise `TidelogError`. Any other error is a bug; it is logged with its trace and answered as
INTERNAL.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
import structlog
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import DecodeError

from tidelog.errors import InvalidRequest, TidelogError
from tidelog.large_field import fields
from tidelog_broker.api.access_control import AccessControl
from tidelog_broker.api.admission import Admission
from tidelog_broker.api.admitted import Admitted, Caller
from tidelog_broker.api.permissions import PERMISSIONS, Permission
from tidelog_broker.api.status import RichStatus, internal_error, rich_status
from tidelog_broker.api.usage import PAUSE_SECONDS_MAX, Usage
from tidelog_broker.limits.turns import Turns

log = structlog.get_logger(__name__)

OUTBOX_MAX = 10_000
"""Answers of one Produce call that its client has not taken yet; over it no more requests are read."""

REQUEST_BYTES_MAX = 1 << 20
"""Of a request without records. Protobuf takes up to 30 ms for so much, if it is made of tiny messages."""

REQUEST_FIELDS_MAX = 11_000
"""Of such a request. The largest of ours name ten thousand partitions or streams."""

COUNTED_BYTES_MIN = 64 << 10
"""The fields of a smaller request are not counted."""

TURN_BYTES_MAX = 4 << 20
"""Of calls that begin in one turn of the event loop, and of answers; some ten milliseconds each."""

REQUESTS: Final = "requests"
"""As quotas call them."""

CALL_BYTES = 128 << 10
"""To begin a call, or to send an answer of it, takes as long as so many bytes of an answer, beside those."""

# Not in the stubs.
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_GONE: type[Exception] = grpc.aio.BaseError

Observe = Callable[[str, str], None]
"""Called with the rpc's name and the code of its outcome ("OK" or an error code)."""


Answer = Callable[[Any, Caller], Coroutine[Any, Any, Any]]
"""Serves one call: the request, or of a stream of requests nothing, and the caller."""


class Kind(Enum):
    """What goes each way."""

    UNARY = auto()
    STREAM = auto()
    """One request, many answers."""
    DUPLEX = auto()
    """Many requests, many answers."""


class Refused(NamedTuple):
    """Stands for a request that was not parsed; the call ends with the reason."""

    error: TidelogError


class Method(NamedTuple):
    """One rpc of a service."""

    name: str
    kind: Kind
    parse: Callable[[bytes], Any]
    """Its requests. Raises nothing, because gRPC would tell the client nothing: see `Refused`."""
    answer: Answer


class Calls:
    """Makes `Method`s of a service's methods."""

    def __init__(self, admission: Admission, observe: Observe, control: AccessControl) -> None:
        """`admission` says how many run at a time, `control` what their callers may do."""
        self._admission = admission
        self._control = control
        self._observe = observe
        self._begins = Turns(TURN_BYTES_MAX)
        self._answers = Turns(TURN_BYTES_MAX)
        """Apart, so that a small request does not wait behind large answers."""

    def methods(self, descriptor: ServiceDescriptor, service: object) -> Iterator[Method]:
        """All rpcs of a service. Raises KeyError for an rpc without a permission."""
        for method in descriptor.methods:
            permission = PERMISSIONS[descriptor.name][method.name]
            function = getattr(service, _snake(method.name))
            parse = _careful(
                method.name, _parsers_of(service).get(method.name) or _parser_of_small(method.input_type)
            )
            if method.client_streaming:
                kind, answer = Kind.DUPLEX, self._duplex(method.name, function)
            elif method.server_streaming:
                kind, answer = Kind.STREAM, self._stream(method.name, function, permission)
            else:
                kind, answer = Kind.UNARY, self._unary(method.name, function, permission)
            yield Method(method.name, kind, parse, answer)

    def _unary(self, name: str, function: Callable[[Any], Any], permission: Permission) -> Answer:
        async def answer(request: Any, context: Caller) -> Any:
            try:
                # Refusals take as long.
                await self._begins.turn(CALL_BYTES)
                async with self._admitted(context) as access:
                    accepted = _accepted(request)
                    permission(access, accepted)
                    await access.usage.pace(access.usage.requests, 1, REQUESTS)
                    response = await function(accepted)
            except Exception as error:
                aborting = self._abort(name, error, context)
                # gRPC keeps the error that `abort` raises with the call: a frame that the error leads to must
                # not lead to the call, nor to the request, which may be megabytes, until a full collection.
                accepted = None
                del request, context
                await aborting
            else:
                self._observe(name, "OK")
                return response

        return answer

    def _stream(
        self, name: str, function: Callable[[Any], AsyncGenerator[Any]], permission: Permission
    ) -> Answer:
        async def answer(request: Any, context: Caller) -> None:
            try:
                # Refusals take as long.
                await self._begins.turn(CALL_BYTES)
                async with self._admitted(context, stream=True) as access:
                    accepted = _accepted(request)
                    permission(access, accepted)
                    await access.usage.pace(access.usage.requests, 1, REQUESTS)
                    async with aclosing(function(accepted)) as responses:
                        async for response in responses:
                            await self._answers.turn(CALL_BYTES + getattr(response, "bytes_to_send", 0))
                            await context.write(response)
            except Exception as error:
                aborting = self._abort(name, error, context)
                # gRPC keeps the error that `abort` raises with the call: a frame that the error leads to must
                # not lead to the call, nor to the request, which may be megabytes, until a full collection.
                accepted = None
                del request, context
                await aborting
            else:
                self._observe(name, "OK")

        return answer

    def _duplex(self, name: str, function: Callable[[Callable[[Any], None]], Any]) -> Answer:
        async def serve(context: Caller, usage: Usage) -> None:
            await usage.pace(usage.requests, 1, REQUESTS)
            outbox = _Outbox(context)
            writer = asyncio.create_task(outbox.run())
            try:
                call = function(outbox.put)
                while (request := await context.read()) is not _EOF:
                    call.receive(_accepted(request))
                    while (pause := call.pause()) > 0:
                        await usage.slept(min(pause, PAUSE_SECONDS_MAX))
                    if call.full:
                        await call.until(lambda: not call.full)
                    if outbox.full:
                        await outbox.room()
                await call.until(lambda: call.unanswered == 0)
                outbox.close()
                await writer
            finally:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)

        async def answer(_requests: Any, context: Caller) -> None:
            try:
                async with self._admitted(context, stream=True) as access:
                    await serve(context, access.usage)
            except Exception as error:
                aborting = self._abort(name, error, context)
                del context
                await aborting
            else:
                self._observe(name, "OK")

        return answer

    def _admitted(self, context: Caller, *, stream: bool = False) -> Admitted:
        return Admitted(self._admission, self._control, context, stream)

    async def _abort(self, name: str, error: Exception, context: Caller) -> None:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, _GONE):
            # The client left while it was being answered, so the error cannot be sent.
            self._observe(name, "CANCELLED")
            return
        if not isinstance(error, TidelogError):
            log.error("a call failed with an internal error", rpc=name, exc_info=error)
            error = internal_error(error)
        self._observe(name, error.code)
        # They lead through frames that hold the request, and these to the error.
        error.__traceback__ = error.__context__ = None
        status = RichStatus(rich_status(error))
        context.set_trailing_metadata(status.trailing_metadata)
        aborting = context.abort(status.code, status.details)
        del context
        await aborting


class _Outbox:
    """Answers of one call that wait to be written; when there are many the call is not read."""

    def __init__(self, context: Caller) -> None:
        self._context = context
        self._responses: deque[Any] = deque()
        self._wake = asyncio.Event()
        self._emptied = asyncio.Event()
        self._closed = False

    def put(self, response: Any) -> None:
        self._responses.append(response)
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    @property
    def full(self) -> bool:
        return len(self._responses) > OUTBOX_MAX

    async def room(self) -> None:
        """Waits until all answers are written."""
        while self._responses:
            self._emptied.clear()
            await self._emptied.wait()

    async def run(self) -> None:
        try:
            while True:
                while self._responses:
                    await self._context.write(self._responses.popleft())
                self._emptied.set()
                if self._closed:
                    return
                self._wake.clear()
                await self._wake.wait()
        finally:
            # What waits for room must see that the call is over.
            self._responses.clear()
            self._emptied.set()


def _parsers_of(service: object) -> Mapping[str, Callable[[bytes], Any]]:
    found: Mapping[str, Callable[[bytes], Any]] = getattr(service, "request_parsers", {})
    return found


def _parser_of_small(descriptor: Descriptor) -> Callable[[bytes], Any]:
    request_class: Any = message_factory.GetMessageClass(descriptor)

    def parse(data: bytes) -> Any:
        if len(data) > REQUEST_BYTES_MAX:
            raise InvalidRequest(
                f"the request has {len(data)} bytes; a request without records may have "
                f"{REQUEST_BYTES_MAX} at most"
            )
        if len(data) > COUNTED_BYTES_MIN:
            _check_few_fields(data)
        return request_class.FromString(data)

    return parse


def _check_few_fields(data: bytes) -> None:
    """Each may be a message, and take fifty times its bytes."""
    try:
        many = any(number > REQUEST_FIELDS_MAX for number, _ in enumerate(fields(data, 0, len(data)), 1))
    except ValueError:
        # Protobuf will say so.
        return
    if many:
        raise InvalidRequest(f"the request has more than {REQUEST_FIELDS_MAX} fields; split it")


def _careful(name: str, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parse_or_refuse(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return Refused(
                InvalidRequest(f"the {len(data)} bytes of the request are not a valid {name}Request")
            )
        except TidelogError as error:
            return Refused(error)

    return parse_or_refuse


def _accepted(request: Any) -> Any:
    if isinstance(request, Refused):
        raise request.error
    return request


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
