"""The contexts for connections between brokers, which follow changes of the files.

Certificates are renewed while a broker runs, so each handshake uses the files as they are then. An open
connection ends only if the authority of its certificate was withdrawn. Neighbour: `files` reads the files.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, cast

from cryptography import x509

from tidelog_broker.tls.files import Loaded, TlsFiles, TlsFilesInvalid
from tidelog_broker.tls.following import FollowedFiles, PeerCertificate
from tidelog_broker.tls.names import BrokerName, NameInvalid, broker_in


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
        self._path = files.certificate
        self._name: BrokerName | None = None
        self.files = FollowedFiles(files, self._check_name)
        self.server: ssl.SSLContext = _Following(ssl.PROTOCOL_TLS_SERVER, lambda: self.files.now().server)
        """For connections that this broker accepts."""
        self.client: ssl.SSLContext = _Following(ssl.PROTOCOL_TLS_CLIENT, lambda: self.files.now().client)
        """For connections that this broker dials."""

    def __repr__(self) -> str:
        return f"<Credentials {self.name}>"

    @property
    def name(self) -> BrokerName:
        """The name in the certificate of this broker."""
        assert self._name is not None, "the files were read"
        return self._name

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
        return PeerCertificate(x509.load_der_x509_certificate(leaf), self.files.last.authorities)

    def is_withdrawn(self, certificate: PeerCertificate) -> bool:
        """Whether no present authority signed this certificate; see `FollowedFiles.is_withdrawn`."""
        return self.files.is_withdrawn(certificate)

    def _check_name(self, loaded: Loaded) -> None:
        try:
            name = _name(loaded.certificate)
        except NameInvalid as error:
            raise TlsFilesInvalid(f"{self._path}: {error}") from error
        if self._name is not None and name != self._name:
            raise TlsFilesInvalid(f"{self._path} names {name}, but this is {self._name}")
        self._name = name


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


def _name(certificate: x509.Certificate) -> BrokerName:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return broker_in(names.get_values_for_type(x509.UniformResourceIdentifier))
    except x509.ExtensionNotFound:
        raise NameInvalid(
            f"the certificate has no subject alternative name; it needs a URI such as {BrokerName('main', 0)}"
        ) from None
    except ValueError as error:
        raise NameInvalid(f"the names in the certificate cannot be read: {error}") from error


def uris(connection: ssl.SSLObject) -> list[str]:
    """The URIs among the names in the certificate at the other end, which was verified."""
    certificate = connection.getpeercert() or {}
    names = cast("tuple[tuple[str, str], ...]", certificate.get("subjectAltName", ()))
    return [value for kind, value in names if kind == "URI"]
