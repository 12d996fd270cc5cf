"""TLS files that are read again when they change: certificates are renewed while a broker runs.

Neighbours: `files` reads them once; `credentials` and the doors for clients use what they hold.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from cryptography import x509

from tidelog_broker.tls.files import Loaded, TlsFiles, TlsFilesInvalid, is_signed, load

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often open connections make this broker look whether the files have changed."""


class PeerCertificate:
    """The certificate at the other end of an open connection."""

    def __init__(
        self,
        leaf: x509.Certificate,
        trusted_by: tuple[x509.Certificate, ...] = (),
        between: Sequence[x509.Certificate] = (),
    ) -> None:
        """`between`: what the other end has sent after its certificate, the issuer of each next."""
        self.leaf = leaf
        self.chain = _linked(leaf, between)
        """The certificate, and those between it and its authority."""
        self.trusted_by = trusted_by
        """The authorities, one of which was last found to have signed it."""

    def __repr__(self) -> str:
        return f"<PeerCertificate number={self.leaf.serial_number:x}>"


class FollowedFiles:
    """What the files hold. Any thread may ask; `is_withdrawn` belongs to an event loop."""

    def __init__(self, files: TlsFiles, check: Callable[[Loaded], None] = lambda _: None) -> None:
        """Reads the files. `check` raises `TlsFilesInvalid` for those that are not to be used."""
        self._files = files
        self._check = check
        self._lock = threading.Lock()
        self._looked = 0.0
        """When the files were last looked at for open connections; event loop's clock."""
        self._stamp = files.stamp()
        self.last = load(files)
        """What the files held when they were last looked at and could be used."""
        check(self.last)
        self._told = ""
        """The reason why changed files are not used, as it was logged last; empty: they are used."""

    def __repr__(self) -> str:
        return f"<FollowedFiles {self._files.certificate}>"

    @property
    def asks_for_certificates(self) -> bool:
        """Whether the other ends must have a certificate."""
        return self._files.authorities is not None

    @property
    def unusable(self) -> bool:
        """Whether the files have changed and cannot be used."""
        return bool(self._told)

    def now(self) -> Loaded:
        """What the files hold. Looks whether they have changed, and reads them if so; both block for a
        moment.

        Files that cannot be used, for example while they are being replaced one after the other, change
        nothing; the next handshake looks again.
        """
        with self._lock:
            try:
                stamp = self._files.stamp()
                if stamp != self._stamp:
                    self.last, self._stamp = self._load_again(stamp), stamp
                    log.info("the TLS files changed; new connections use them", file=self._file)
                self._told = ""
            except TlsFilesInvalid as error:
                if str(error) != self._told:
                    log.warning(
                        "the TLS files changed and cannot be used; new connections use the earlier ones",
                        file=self._file,
                        reason=str(error),
                    )
                self._told = str(error)
            return self.last

    def _load_again(self, stamp: object) -> Loaded:
        loaded = load(self._files)
        if self._files.stamp() != stamp:
            raise TlsFilesInvalid(f"{self._file} or a file that belongs to it is just being replaced")
        self._check(loaded)
        return loaded

    @property
    def _file(self) -> str:
        return str(self._files.certificate)

    def is_withdrawn(self, certificate: PeerCertificate) -> bool:
        """Whether the authorities have changed, and none of the present ones signed this certificate.

        Looks at the files at most once in `LOOK_SECONDS`. If there are certificates between it and its
        authority that are not known, the answer is true; a new handshake tells more.
        """
        now = asyncio.get_running_loop().time()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.now()
        authorities = self.last.authorities
        if certificate.trusted_by == authorities:
            return False
        if not any(is_signed(one, authority) for one in certificate.chain for authority in authorities):
            return True
        certificate.trusted_by = authorities
        return False


def _linked(leaf: x509.Certificate, between: Sequence[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The beginning of the chain in which an authority signed each certificate.

    The handshake verified only those that it needed; the other end may have added any.
    """
    chain = [leaf]
    for issuer in between:
        if not (_is_authority(issuer) and is_signed(chain[-1], issuer)):
            break
        chain.append(issuer)
    return tuple(chain)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False
