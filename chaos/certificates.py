"""Authorities and certificates of brokers, as an administrator makes them."""

from __future__ import annotations

import datetime
import itertools
import os
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidelog_broker.tls.files import TlsFiles
from tidelog_broker.tls.names import BrokerName

DAY = datetime.timedelta(days=1)
PEM = serialization.Encoding.PEM
NUMBERS = itertools.count(1)


class Authority:
    """Signs certificates."""

    def __init__(self, lasts: datetime.timedelta = DAY, *, above: Authority | None = None) -> None:
        """`above`: the authority that signs this one; None: itself."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {next(NUMBERS)}")])
        signer = above or self
        self._certificate = (
            _certificate(self._name, signer._name, self._key.public_key(), lasts)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(PEM)

    def issue(
        self,
        folder: Path,
        *uris: str,
        lasts: datetime.timedelta = DAY,
        trusted: bytes = b"",
        hosts: Sequence[str] = (),
        between: bytes = b"",
    ) -> TlsFiles:
        """Writes a certificate with these URIs and IP addresses, its key, and the authorities.

        `trusted`: the authorities; empty: this one. `between` is written after the certificate.

        Each file is replaced in one step, as a renewal does it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
        made = _certificate(subject, self._name, key.public_key(), lasts)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.IPAddress(ip_address(host)) for host in hosts]
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = made.sign(self._key, hashes.SHA256())
        files = TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        _replace(files.certificate, certificate.public_bytes(PEM) + between)
        _replace(
            files.key,
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        )
        _replace(folder / "ca.crt", trusted or self.pem)
        return files

    def issue_broker(
        self,
        folder: Path,
        broker_id: int,
        *,
        cluster: str = "main",
        lasts: datetime.timedelta = DAY,
        trusted: bytes = b"",
        host: str,
    ) -> TlsFiles:
        """A certificate of a broker, for its listeners on `host`, too."""
        name = str(BrokerName(cluster, broker_id))
        return self.issue(folder, name, lasts=lasts, trusted=trusted, hosts=[host])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + lasts)
    )


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(data)
    os.replace(beside, path)
