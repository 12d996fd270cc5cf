"""The contexts for connections between brokers, which follow changes of the files.

Certificates are renewed while a broker runs, so each handshake uses the files as they are then. An open
connection ends only if the authority of its certificate was withdrawn. Neighbour: `files` reads the files.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

import structlog
from cryptography import x509

from tidelog_broker.tls.files import Loaded, TlsFiles, TlsFilesInvalid, is_signed, load
from tidelog_broker.tls.names import BrokerName, NameInvalid, broker_in

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often open connections make this broker look whether the files have changed."""


class PeerCertificate:
    """The certificate at the other end of an open connection."""

    def __init__(self, leaf: x509.Certificate, trusted_by: tuple[x509.Certificate, ...]) -> None:
        self.leaf = leaf
        self.trusted_by = trusted_by
        """The authorities, one of which was last found to have signed it."""

    def __repr__(self) -> str:
        return f"<PeerCertificate number={self.leaf.serial_number:x}>"


class Credentials:
    """The certificate of this broker, and what it asks of the certificates of others.

    Belongs to one event loop. A handshake looks whether the three files have changed, and reads them if so;
    both block for a moment.
    """

    def __init__(self, files: TlsFiles, *, permissive: bool = False) -> None:
        """Reads the files. Raises `TlsFilesInvalid`.

        `permissive`: connections without TLS are allowed, too: the cluster is changing from one to the other.
        """
        self.permissive = permissive
        self._files = files
        self._looked = 0.0
        """When the files were last looked at for open connections; event loop's clock."""
        self._stamp = files.stamp()
        self._loaded = load(files)
        self._told = ""
        """The reason why changed files are not used, as it was logged last; empty: they are used."""
        self.server: ssl.SSLContext = _Following(ssl.PROTOCOL_TLS_SERVER, lambda: self._now().server)
        """For connections that this broker accepts."""
        self.client: ssl.SSLContext = _Following(ssl.PROTOCOL_TLS_CLIENT, lambda: self._now().client)
        """For connections that this broker dials."""

    def __repr__(self) -> str:
        return f"<Credentials {self.name}>"

    @property
    def name(self) -> BrokerName:
        """The name in the certificate of this broker."""
        return self._loaded.name

    @property
    def expires(self) -> float:
        """When the certificate of this broker can no longer be verified; Unix time."""
        return self._loaded.expires

    @property
    def unusable(self) -> bool:
        """Whether the files have changed and cannot be used."""
        return bool(self._told)

    def check(self, connection: ssl.SSLObject | None, broker_id: int) -> PeerCertificate | None:
        """The certificate at the other end, which is that of this broker of the same cluster; None if the
        other end uses no TLS and may do so. Raises `NameInvalid`.

        `connection`: None if the other end uses no TLS.
        """
        if connection is None:
            if self.permissive:
                return None
            raise NameInvalid(f"the connection of broker {broker_id} does not use TLS")
        found, expected = broker_in(uris(connection)), BrokerName(self.name.cluster, broker_id)
        if found != expected:
            raise NameInvalid(f"the certificate of broker {broker_id} names {found} instead of {expected}")
        leaf = connection.getpeercert(binary_form=True)
        assert leaf is not None, "the handshake verified it"
        return PeerCertificate(x509.load_der_x509_certificate(leaf), self._loaded.authorities)

    def is_withdrawn(self, certificate: PeerCertificate) -> bool:
        """Whether the authorities have changed, and none of the present ones signed this certificate.

        If there are certificates between it and its authority, this broker does not have them any more, and
        the answer is true; a new handshake tells more.
        """
        now = asyncio.get_running_loop().time()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._now()
        authorities = self._loaded.authorities
        if certificate.trusted_by == authorities:
            return False
        if not any(is_signed(certificate.leaf, one) for one in authorities):
            return True
        certificate.trusted_by = authorities
        return False

    def _now(self) -> Loaded:
        """What the files hold. Files that cannot be used, for example while they are being replaced one
        after the other, change nothing; the next handshake looks again."""
        try:
            stamp = self._files.stamp()
            if stamp != self._stamp:
                loaded = load(self._files)
                if loaded.name != self.name:
                    raise TlsFilesInvalid(
                        f"{self._files.certificate} names {loaded.name}, but this is {self.name}"
                    )
                self._loaded, self._stamp = loaded, stamp
                log.info("the TLS files changed; new connections use them", certificate=str(self.name))
            self._told = ""
        except TlsFilesInvalid as error:
            if str(error) != self._told:
                log.warning(
                    "the TLS files changed and cannot be used; new connections use the earlier ones",
                    reason=str(error),
                )
            self._told = str(error)
        return self._loaded


class _Following(ssl.SSLContext):
    """A context that asks for the present one at each handshake: asyncio and uvloop keep the context of a
    listener for ever, and call `wrap_bio` for each connection."""

    _present: Callable[[], ssl.SSLContext]

    def __new__(cls, protocol: int, present: Callable[[], ssl.SSLContext]) -> _Following:
        made = super().__new__(cls, protocol)
        made._present = present
        # asyncio reads both before a connection is made.
        made.check_hostname = False
        made.verify_mode = ssl.CERT_REQUIRED
        return made

    def __init__(self, protocol: int, present: Callable[[], ssl.SSLContext]) -> None:
        """`present`: the context of a handshake that begins now."""

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self._present().wrap_bio(*args, **options)


def uris(connection: ssl.SSLObject) -> list[str]:
    """The URIs among the names in the certificate at the other end, which was verified."""
    certificate = connection.getpeercert() or {}
    names = cast("tuple[tuple[str, str], ...]", certificate.get("subjectAltName", ()))
    return [value for kind, value in names if kind == "URI"]
