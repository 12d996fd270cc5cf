"""Refuses and ends calls of clients whose certificates are trusted no more.

A handshake verifies a certificate, and gRPC keeps the connection for as long as its client wants. So each
call looks at the certificate of its connection when it begins, and streams while they run, once in
`LOOK_SECONDS`. Neighbour: `calls` serves calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

import structlog
from cryptography import x509

from tidelog.errors import Unauthenticated, Unavailable
from tidelog_broker.tls.following import LOOK_SECONDS, FollowedFiles, PeerCertificate

log = structlog.get_logger(__name__)

CERTIFICATES_MAX: Final = 1024
"""Certificates that are remembered, so that calls on one connection need not read its certificate again."""

_PEM: Final = "x509_pem_cert"
"""The key of gRPC's for the certificate of the client; absent if it has shown none."""

_CHAIN: Final = "x509_pem_cert_chain"
"""Its key for the certificates that the client sent after its own; absent if there are none."""


class _Stream:
    """A call that may go on for hours."""

    def __init__(self, certificate: PeerCertificate) -> None:
        self.certificate = certificate
        self.task = asyncio.current_task()
        self.ended = False


class ClientCertificates:
    """Looks at the certificates of calls, when they begin and while they run."""

    def __init__(self, files: FollowedFiles) -> None:
        """`files`: with the authorities of clients."""
        self._files = files
        self._read = lru_cache(CERTIFICATES_MAX)(self._read_new)
        self._streams: dict[_Stream, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<ClientCertificates streams={len(self._streams)}>"

    def check(self, pem: tuple[bytes, ...]) -> PeerCertificate:
        """The certificate of the connection of a call that begins; `pem` as from `certificate_of`.

        Raises `Unauthenticated`.
        """
        certificate = self._read(pem)
        if self._files.is_withdrawn(certificate):
            raise Unauthenticated(
                "no authority that this broker trusts signed the certificate of this connection; connect "
                "again with a certificate of a present authority"
            )
        return certificate

    @contextmanager
    def held(self, certificate: PeerCertificate) -> Iterator[None]:
        """Around a stream. Raises `Unavailable` in it when the certificate is withdrawn.

        The client may try again, because it may have a newer certificate.
        """
        stream = _Stream(certificate)
        self._streams[stream] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        try:
            yield
        except asyncio.CancelledError:
            if not stream.ended or stream.task is None:
                raise
            stream.task.uncancel()
            raise Unavailable(
                "the authority of this connection's certificate is not trusted any more; connect again"
            ) from None
        finally:
            del self._streams[stream]

    def _look(self) -> None:
        self._timer = None
        for stream in self._streams:
            if not stream.ended and stream.task and self._files.is_withdrawn(stream.certificate):
                stream.ended = True
                stream.task.cancel()
        if self._streams:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _read_new(self, pem: tuple[bytes, ...]) -> PeerCertificate:
        leaf, *between = (one for text in pem for one in x509.load_pem_x509_certificates(text))
        return PeerCertificate(leaf, between=between)


def certificate_of(facts: Mapping[str, Sequence[bytes]]) -> tuple[bytes, ...]:
    """The certificate of the client in what gRPC says of a connection's security, and what was sent after it
    (PEM); empty if there is none."""
    return (*facts.get(_PEM, ()), *facts.get(_CHAIN, ()))
