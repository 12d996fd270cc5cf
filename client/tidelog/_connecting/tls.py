"""TLS between a client and brokers: its files, checked, and read again when they change.

Neighbours: `broker_channel` makes channels with it, `channels` replaces channels after a renewal.
"""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from tidelog.errors import InvalidRequest

LOOK_S: Final = 1.0
"""How often a client looks whether its files have changed."""

FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How a client knows brokers, and what it shows them: paths of PEM files."""

    authorities: str | os.PathLike[str] = ""
    """The authorities that sign the certificates of brokers. Empty: the public authorities that gRPC
    brings along."""
    certificate: str | os.PathLike[str] = ""
    """The certificate of this client, and those between it and its authority. Empty: it shows none."""
    key: str | os.PathLike[str] = ""
    """The private key of the certificate, without a password."""

    def __post_init__(self) -> None:
        for name in ("authorities", "certificate", "key"):
            path = getattr(self, name)
            if not isinstance(path, str | os.PathLike):
                raise InvalidRequest(f"tls.{name} is {path!r}; give the path of a PEM file")
        if bool(self.certificate) != bool(self.key):
            given, missing = ("certificate", "key") if self.certificate else ("key", "certificate")
            raise InvalidRequest(f"tls.{given} is given without tls.{missing}; give both, or neither")


class Credentials:
    """What the files of a client hold."""

    def __init__(self, tls: Tls) -> None:
        """Reads the files. Blocking. Raises `InvalidRequest`, whose details name the argument `tls`."""
        self._tls = tls
        try:
            self._stamp = _stamp(tls)
            self.for_channels = _load(tls)
            """For channels that are made now."""
        except InvalidRequest as error:
            error.details["argument"] = "tls"
            raise
        self._looked = time.monotonic()

    def __repr__(self) -> str:
        return f"<Credentials {self._tls}>"

    def renewed(self) -> bool:
        """Whether the files have changed since the last call. Looks at most once in `LOOK_S`.

        Files that cannot be used, for example while they are being replaced one after the other, change
        nothing.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return False
        self._looked = now
        try:
            stamp = _stamp(self._tls)
            if stamp == self._stamp:
                return False
            loaded = _load(self._tls)
            if _stamp(self._tls) != stamp:
                return False
        except InvalidRequest:
            return False
        self.for_channels, self._stamp = loaded, stamp
        return True


def _stamp(tls: Tls) -> tuple[tuple[int, int, int], ...]:
    """Differs when a file was replaced or written."""
    found = []
    for path in (tls.authorities, tls.certificate, tls.key):
        if path:
            try:
                status = Path(path).stat()
            except OSError as error:
                raise _unreadable(path, error) from error
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _load(tls: Tls) -> grpc.ChannelCredentials:
    authorities = _read(tls.authorities) if tls.authorities else None
    certificate, key = (_read(path) if path else None for path in (tls.certificate, tls.key))
    _check(tls)
    return grpc.ssl_channel_credentials(authorities, key, certificate)


def _check(tls: Tls) -> None:
    """gRPC would only say that a connection failed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.authorities:
        try:
            context.load_verify_locations(tls.authorities)
        except OSError as error:
            raise InvalidRequest(f"{tls.authorities} holds no certificates of authorities in PEM") from error
    if not tls.certificate:
        return
    try:
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except OSError as error:
        raise InvalidRequest(
            f"{tls.key} is not the key of the certificate in {tls.certificate}; give a certificate and its "
            "private key in PEM"
        ) from error
    except _PasswordWanted:
        raise InvalidRequest(
            f"{tls.key} is protected by a password; give a private key without a password"
        ) from None


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > FILE_BYTES_MAX:
        raise InvalidRequest(f"{path} is larger than {FILE_BYTES_MAX} bytes; give a PEM file")
    return data


def _unreadable(path: str | os.PathLike[str], error: OSError) -> InvalidRequest:
    return InvalidRequest(f"the TLS file {path} cannot be read: {error.strerror or error}")


class _PasswordWanted(Exception):
    pass


def _no_password() -> str:
    raise _PasswordWanted
