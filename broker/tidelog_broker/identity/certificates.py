"""Client certificates: the principal that each names, and whether it is still trusted (A1, A3).

A handshake verifies a certificate, and gRPC keeps the connection for as long as its client wants. So a
certificate is looked at again after its handshake. Neighbour: `authentication` asks when a call begins, and
while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from tidelog.errors import Unauthenticated
from tidelog.model.access import is_principal_name
from tidelog_broker.identity.identity import Identity, WallClock
from tidelog_broker.tls.following import FollowedFiles, PeerCertificate
from tidelog_broker.tls.names import SCHEME, ClientName, NameInvalid, broker_in, client_in

CERTIFICATES_MAX: Final = 1024
"""Certificates that are remembered, so that calls on one connection need not read its certificate again."""

WITHDRAWN: Final = (
    "no authority that this broker trusts signed the certificate of this connection; connect again with a "
    "certificate of a present authority"
)
EXPIRED: Final = "the certificate of this connection has expired; connect again with a new certificate"


class _Known(NamedTuple):
    identity: Identity | None
    """None: the certificate names no principal."""
    wrong: str
    """Why it does not."""
    doubt: Callable[[], str]


class ClientCertificates:
    """The identities of client certificates."""

    def __init__(self, files: FollowedFiles, now: WallClock) -> None:
        """`files`: with the certificate of this broker, and the authorities of clients."""
        self._files = files
        self._now = now
        self._read = lru_cache(CERTIFICATES_MAX)(self._read_new)

    def __repr__(self) -> str:
        return f"<ClientCertificates {self._read.cache_info().currsize}>"

    def identity_of(self, pem: tuple[bytes, ...], *, just_verified: bool = False) -> Identity:
        """The identity of a certificate and of those that were sent after it. Raises `Unauthenticated`.

        `just_verified`: the handshake was for this request alone, and its certificate is still trusted.
        """
        known = self._read(pem) if just_verified else self._trusted(pem)
        if known.identity is None:
            raise Unauthenticated(known.wrong)
        return known.identity

    def checked(self, pem: tuple[bytes, ...]) -> Callable[[], str]:
        """What says whether the certificate is still trusted, whomever it names. Raises `Unauthenticated`."""
        return self._trusted(pem).doubt

    def _trusted(self, pem: tuple[bytes, ...]) -> _Known:
        known = self._read(pem)
        wrong = known.doubt()
        if wrong:
            raise Unauthenticated(wrong)
        return known

    def _read_new(self, pem: tuple[bytes, ...]) -> _Known:
        leaf, *between = (one for text in pem for one in x509.load_pem_x509_certificates(text))
        certificate = PeerCertificate(leaf, between=between)
        expires = leaf.not_valid_after_utc.timestamp()

        def doubt() -> str:
            if self._files.is_withdrawn(certificate):
                return WITHDRAWN
            return EXPIRED if self._now() >= expires else ""

        try:
            return _Known(Identity(self._principal_of(leaf), doubt=doubt), "", doubt)
        except NameInvalid as error:
            return _Known(None, str(error), doubt)

    def _principal_of(self, leaf: x509.Certificate) -> str:
        """Raises `NameInvalid`."""
        uris = _uris(leaf)
        if any(uri.startswith(SCHEME) for uri in uris):
            return self._principal_named(uris)
        names = [str(one.value) for one in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if len(names) != 1 or not is_principal_name(names[0]):
            raise NameInvalid(
                "the certificate of this connection names no principal; it needs one URI such as "
                f"{ClientName('main', 'orders-writer')}, or one common name"
            )
        return f"user:{names[0]}"

    def _principal_named(self, uris: list[str]) -> str:
        name: ClientName | None = None
        try:
            name = client_in(uris)
        except NameInvalid:
            broker = broker_in(uris)
            cluster, principal = broker.cluster, f"broker:{broker.broker_id}"
        else:
            cluster, principal = name.cluster, f"user:{name.user}"
        own = _cluster_in(self._files.last.certificate)
        if cluster != own:
            raise NameInvalid(
                f"the certificate of this connection is for the cluster {cluster!r}; this broker belongs to "
                + (
                    f"the cluster {own!r}"
                    if own
                    else "a cluster without a name, because its certificate has none"
                )
            )
        return principal


def _cluster_in(certificate: x509.Certificate) -> str:
    """The cluster that the certificate of this broker names; empty: none."""
    try:
        return broker_in(_uris(certificate)).cluster
    except NameInvalid:
        return ""


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)
