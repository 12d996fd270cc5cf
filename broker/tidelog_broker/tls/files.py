"""Reads the TLS files of one broker, and checks that they fit together."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from tidelog_broker.errors import BrokerError

FILE_BYTES_MAX: Final = 1 << 20
"""A bundle of hundreds of certificates fits."""


class TlsFilesInvalid(BrokerError):
    """A TLS file cannot be used; the message says which file, and what would be right."""


class TlsFiles(NamedTuple):
    """PEM files."""

    certificate: Path
    """The certificate of this broker, and the certificates between it and its authority."""
    key: Path
    """The private key of the certificate, without a password."""
    authorities: Path | None
    """The authorities that sign the certificates of the other ends. During a change of authority: both.
    None: the other ends need no certificate."""

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Differs when a file was replaced or written. Raises `TlsFilesInvalid`."""
        return tuple(_stamp(path) for path in self if path is not None)


class Pem(NamedTuple):
    """What the files hold, as text."""

    certificate: bytes
    key: bytes
    authorities: bytes
    """Empty: the other ends need no certificate."""


class Loaded(NamedTuple):
    """What the files hold."""

    certificate: x509.Certificate
    """The certificate of this broker."""
    expires: float
    """When the certificate expires, or one of those between it and its authority, or the authority if it is
    in the files, whichever is first; Unix time."""
    authorities: tuple[x509.Certificate, ...]
    pem: Pem
    server: ssl.SSLContext
    """For connections that this broker accepts. The other end must have a certificate, unless the files name
    no authorities."""
    client: ssl.SSLContext
    """For connections that this broker dials."""


def load(files: TlsFiles) -> Loaded:
    """Reads the files. Blocking. Raises `TlsFilesInvalid`."""
    pem = Pem(
        _read(files.certificate),
        _read(files.key),
        b"" if files.authorities is None else _read(files.authorities),
    )
    chain = _certificates(files.certificate, pem.certificate, "does not begin with a certificate in PEM")
    authorities: list[x509.Certificate] = []
    if files.authorities is not None:
        authorities = _certificates(
            files.authorities, pem.authorities, "holds no certificates of authorities in PEM"
        )
    issuers = [one for one in authorities if is_signed(chain[-1], one)]
    return Loaded(
        chain[0],
        min(one.not_valid_after_utc.timestamp() for one in (*chain, *issuers[:1])),
        tuple(authorities),
        pem,
        _context(ssl.PROTOCOL_TLS_SERVER, files),
        _context(ssl.PROTOCOL_TLS_CLIENT, files),
    )


def is_signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether this authority signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > FILE_BYTES_MAX:
        raise TlsFilesInvalid(f"{path} is larger than {FILE_BYTES_MAX} bytes; give a PEM file")
    return data


def _certificates(path: Path, data: bytes, wrong: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise TlsFilesInvalid(f"{path} {wrong}: {error}") from error


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The certificate names the broker, and not its host: `names`.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE if files.authorities is None else ssl.CERT_REQUIRED
    try:
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except OSError as error:
        # Errors of OpenSSL are OSErrors, too.
        raise TlsFilesInvalid(
            f"{files.key} is not the key of the certificate in {files.certificate}, or it cannot be read: "
            f"{error.strerror or error}. Give a private key in PEM without a password"
        ) from error
    except _PasswordWanted:
        raise TlsFilesInvalid(
            f"{files.key} is protected by a password; give a private key without a password"
        ) from None
    if files.authorities is None:
        return context
    try:
        context.load_verify_locations(files.authorities)
    except OSError as error:
        raise TlsFilesInvalid(
            f"{files.authorities} holds no certificates of authorities in PEM, or it cannot be read: "
            f"{error.strerror or error}"
        ) from error
    return context


class _PasswordWanted(Exception):
    pass


def _no_password() -> str:
    raise _PasswordWanted


def _unreadable(path: Path, error: OSError) -> TlsFilesInvalid:
    return TlsFilesInvalid(f"the TLS file {path} cannot be read: {error.strerror or error}")
