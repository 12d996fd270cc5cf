"""A fake connection to a broker in memory: the calls of a gRPC channel, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from tidelog._connecting.broker_channel import BrokerChannel
from tidelog.errors import TidelogError
from tidelog.model.access import ANONYMOUS
from tidelog.testing import _status
from tidelog.testing._brokers import MemoryBroker
from tidelog.testing._calls import FetchCall, ProduceCall
from tidelog.testing._faults import call_name
from tidelog_proto import access_pb2, log_pb2

T = TypeVar("T")

Handlers = Mapping[str, Callable[[Any], Any]]
"""By the rpc's name; each answers a request or raises a `TidelogError`."""


ACCESS: Final[Handlers] = {"WhoAmI": lambda _: access_pb2.WhoAmIResponse(principal=ANONYMOUS, superuser=True)}
"""A cluster in memory asks nobody for credentials."""


class FakeConnection(BrokerChannel):
    """The connection to one broker in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.address = broker.address
        self._broker = broker
        self.log: Any = _Stub(broker, broker.services.log)
        self.metadata: Any = _Stub(broker, broker.services.metadata)
        self.admin: Any = _Stub(broker, broker.services.admin)
        self.access: Any = _Stub(broker, ACCESS)

    def produce(self) -> ProduceCall:
        return ProduceCall(self._broker)

    def fetch(self, request: log_pb2.FetchRequest) -> FetchCall:
        return FetchCall(self._broker, request)

    @property
    def connected(self) -> bool:
        return self._broker.up

    async def close(self) -> None:
        """Does nothing: there is no socket, and callers end their calls."""


class _Stub:
    """The unary calls of one service, as generated code has them."""

    def __init__(self, broker: MemoryBroker, handlers: Handlers) -> None:
        self._broker = broker
        self._handlers = handlers

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(request: Any, timeout: float | None = None) -> Any:
            try:
                async with asyncio.timeout(timeout):
                    return await self._broker.unless_broken(self._answer(method, request))
            except TimeoutError:
                raise _status.too_late() from None

        return call

    async def _answer(self, method: str, request: Any) -> Any:
        handler = self._handlers.get(method)
        if handler is None:
            raise _status.unknown_call(method)
        fault = await self._broker.faults.met(call_name(method))
        if fault is not None and not fault.landed:
            raise _status.refused(fault.error)
        try:
            answer = handler(request)
        except TidelogError as error:
            raise _status.refused(error) from None
        if fault is not None:
            raise _status.refused(fault.error)
        return answer
