"""The certificate authority of the cluster, its certificates and tokens, and a kubeconfig for each client of
the API server."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import trustme

USERS: Final = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
}
"""User name and group of each kubeconfig."""


class Certificates:
    """The files, in a folder that only its owner can read; the authority exists after `make`."""

    def __init__(self, folder: Path, server: str) -> None:
        """`server`: the API's URL."""
        self.folder = folder
        self._server = server

    def make(self, names: Sequence[str]) -> None:
        """Creates the authority (ca.crt); for the API server, with these names, apiserver.crt and its client
        certificate for kubelets, apiserver-kubelet-client.crt; their keys, accounts.key for service accounts;
        tokens.csv, and a kubeconfig for each of `USERS`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = trustme.CA(organization_name="tidelog e2e")
        self._write("ca.crt", authority.cert_pem.bytes())
        self._write("ca.key", authority.private_key_pem.bytes())
        self._write_pair("apiserver", authority.issue_cert(*names))
        # Kubelets accept no certificate without a host name.
        masters = authority.issue_cert(
            "localhost", common_name="kube-apiserver", organization_name="system:masters"
        )
        self._write_pair("apiserver-kubelet-client", masters)
        accounts = authority.issue_cert(common_name="accounts")
        self._write("accounts.key", accounts.private_key_pem.bytes())
        tokens = []
        for config, (user, group) in USERS.items():
            token = secrets.token_hex(16)
            tokens.append(f"{token},{user},{user}" + (f',"{group}"' if group else ""))
            self._write_kubeconfig(config, {"token": token})
        self._write("tokens.csv", "\n".join([*tokens, ""]).encode())

    def make_for_node(self, node: str, address: str) -> None:
        """Creates NODE.crt, NODE.key and a kubeconfig; the node uses the certificate as server and as
        client."""
        authority = trustme.CA.from_pem(
            (self.folder / "ca.crt").read_bytes(), (self.folder / "ca.key").read_bytes()
        )
        signed = authority.issue_cert(
            node, address, common_name=f"system:node:{node}", organization_name="system:nodes"
        )
        self._write_pair(node, signed)
        credentials = {
            "client-certificate-data": self._base64(f"{node}.crt"),
            "client-key-data": self._base64(f"{node}.key"),
        }
        self._write_kubeconfig(node, credentials)

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

    def _write_pair(self, name: str, signed: trustme.LeafCert) -> None:
        self._write(f"{name}.crt", signed.cert_chain_pems[0].bytes())
        self._write(f"{name}.key", signed.private_key_pem.bytes())

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
