"""The cluster's authority, its certificates and tokens, and a kubeconfig for whoever speaks to the API."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS: Final = 365

USERS: Final = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
}
"""By kubeconfig: the user's name and group."""


class Certificates:
    """In a folder that nobody but its owner reads; an authority stands there after `make`."""

    def __init__(self, folder: Path, server: str) -> None:
        """`server`: the API's URL."""
        self.folder = folder
        self._server = server

    def make(self, names: Sequence[str]) -> None:
        """The authority, ca.crt; of the API server, which has these names, apiserver.crt and what it shows
        to kubelets, apiserver-kubelet-client.crt; keys beside them; accounts.key and .pub for service
        accounts; tokens.csv, and a kubeconfig for each of `USERS`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tidelog e2e")])
        usage = _usage(signs_certificates=True)
        authority = (
            _certificate(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self._write("ca.crt", authority.public_bytes(serialization.Encoding.PEM))
        self._write("ca.key", _private(key))
        self.sign("apiserver", {NameOID.COMMON_NAME: "kube-apiserver"}, names)
        masters = {NameOID.ORGANIZATION_NAME: "system:masters", NameOID.COMMON_NAME: "kube-apiserver"}
        self.sign("apiserver-kubelet-client", masters, ["localhost"])
        accounts = ec.generate_private_key(ec.SECP256R1())
        self._write("accounts.key", _private(accounts))
        public = serialization.PublicFormat.SubjectPublicKeyInfo
        self._write("accounts.pub", accounts.public_key().public_bytes(serialization.Encoding.PEM, public))
        tokens = []
        for config, (user, group) in USERS.items():
            token = secrets.token_hex(16)
            tokens.append(f"{token},{user},{user}" + (f',"{group}"' if group else ""))
            self._write_kubeconfig(config, {"token": token})
        self._write("tokens.csv", "\n".join([*tokens, ""]).encode())

    def make_for_node(self, node: str, address: str) -> None:
        subject = {NameOID.ORGANIZATION_NAME: "system:nodes", NameOID.COMMON_NAME: f"system:node:{node}"}
        self.sign(node, subject, [node, address])
        credentials = {
            "client-certificate-data": self._base64(f"{node}.crt"),
            "client-key-data": self._base64(f"{node}.key"),
        }
        self._write_kubeconfig(node, credentials)

    def sign(self, name: str, subject: dict[x509.ObjectIdentifier, str], names: Sequence[str]) -> None:
        """Leaves NAME.crt and NAME.key. Key identifiers and usages, because Python 3.13 asks for them."""
        authority = x509.load_pem_x509_certificate((self.folder / "ca.crt").read_bytes())
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        whole = x509.Name([x509.NameAttribute(kind, value) for kind, value in subject.items()])
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
        signed = (
            _certificate(whole, authority.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issuer, critical=False)
            .add_extension(x509.SubjectAlternativeName([_alternative(one) for one in names]), critical=False)
            .sign(signer, hashes.SHA256())
        )
        self._write(f"{name}.crt", signed.public_bytes(serialization.Encoding.PEM))
        self._write(f"{name}.key", _private(key))

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    def _write_kubeconfig(self, name: str, user: dict[str, str]) -> None:
        cluster = {"server": self._server, "certificate-authority-data": self._base64("ca.crt")}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tidelog-e2e", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "tidelog-e2e", "context": {"cluster": "tidelog-e2e", "user": name}}],
            "current-context": "tidelog-e2e",
        }
        self._write(f"{name}.kubeconfig", json.dumps(config).encode())

    def _base64(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
