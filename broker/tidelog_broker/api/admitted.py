"""The begin and the end of a call: whether it is served, who calls, and what the caller may do.

Neighbours: `admission` bounds the calls, `access_control` knows callers, `calls` serves the call in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol

import grpc

from tidelog_broker.api.access import ACCESS, Access
from tidelog_broker.api.access_control import AccessControl
from tidelog_broker.api.admission import CLIENT, Admission, client_of
from tidelog_broker.api.usage import UNLIMITED

CERTIFICATE: Final = "x509_pem_cert"
"""The key of gRPC's for the certificate of the client; absent if it has shown none."""

CERTIFICATE_CHAIN: Final = "x509_pem_cert_chain"
"""Its key for the certificates that the client sent after its own; absent if there are none."""


class Caller(Protocol):
    """What is used of gRPC's context of a call."""

    async def read(self) -> Any: ...

    async def write(self, message: Any) -> None: ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None: ...

    async def abort(self, code: grpc.StatusCode, details: str) -> Any: ...

    def peer(self) -> str: ...

    def auth_context(self) -> Mapping[str, Sequence[bytes]]: ...

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def credentials_of(context: Caller) -> tuple[str, tuple[bytes, ...]]:
    """What a call shows: its authorization, and the certificate of its connection with those that were sent
    after it (PEM). Both may be empty."""
    facts = context.auth_context()
    authorization = ""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            authorization = value if isinstance(value, str) else value.decode("latin-1")
    return authorization, (*facts.get(CERTIFICATE, ()), *facts.get(CERTIFICATE_CHAIN, ()))


class Admitted:
    """Around the service of a call. Raises what refuses it, and `Unavailable` in a stream whose credentials
    are withdrawn.

    Not made by a decorator, because calls with a single record would feel it.
    """

    __slots__ = ("_admission", "_client", "_context", "_control", "_stream", "_usage", "_watched")

    def __init__(self, admission: Admission, control: AccessControl, context: Caller, stream: bool) -> None:
        self._admission = admission
        self._control = control
        self._context = context
        self._stream = stream
        self._client = client_of(context.peer())
        self._usage = UNLIMITED
        self._watched: AbstractContextManager[None] | None = None

    async def __aenter__(self) -> Access:
        self._admission.enter(self._client)
        try:
            access = await self._control.admit(*credentials_of(self._context))
            # The context is the call's own: gRPC serves each in a task.
            CLIENT.set(self._client)
            ACCESS.set(access)
            usage = access.usage
            usage.begin()
            self._usage = usage
            if self._stream:
                watched = self._control.watched(access)
                watched.__enter__()
                self._watched = watched
        except BaseException:
            self._leave()
            raise
        return access

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._watched is not None:
                self._watched.__exit__(kind, error, trace)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._usage is not UNLIMITED:
            self._usage.end()
        self._admission.leave(self._client)
