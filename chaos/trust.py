"""TLS and authentication of a run: authorities, certificates and tokens, and how they are replaced.

All brokers and clients have the same folder layout as on a real machine: three PEM files each, and a token
beside those of the client. Neighbours: `certificates` signs, `cluster` starts brokers with the files, and
`scenarios.rotation` replaces them under load.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import tidelog
from chaos.certificates import Authority
from tidelog import AclRule, Operation, Resource
from tidelog_broker.tls.files import TlsFiles
from tidelog_broker.tls.names import ClientName

CLUSTER: Final = "main"

ADMINISTRATOR: Final = "admin"
"""Its certificate names a superuser."""

LOAD: Final = "user:load"
"""The principal of the clients that write and read."""


class Trust:
    """The files of one run."""

    def __init__(self, folder: Path, brokers: int, host: str) -> None:
        """Makes the certificates of that many brokers, which listen on `host`."""
        self._folder = folder
        self._host = host
        self._brokers = range(brokers)
        self.authority = Authority()
        self._issue_all(self.authority, self.authority.pem)

    # --- files

    def _issue_all(self, authority: Authority, trusted: bytes) -> None:
        for broker in self._brokers:
            self.renew_broker(broker, authority, trusted)
        for client in ("load", ADMINISTRATOR):
            self.renew_client(client, authority, trusted)

    def renew_broker(self, broker: int, authority: Authority | None = None, trusted: bytes = b"") -> None:
        """A new certificate and key for a broker; `trusted`: the authorities that it trusts."""
        issuer = authority or self.authority
        issuer.issue_broker(
            self._folder / f"broker-{broker}", broker, cluster=CLUSTER, trusted=trusted, host=self._host
        )

    def renew_client(
        self, name: str = "load", authority: Authority | None = None, trusted: bytes = b""
    ) -> TlsFiles:
        """A new certificate and key for a client."""
        issuer = authority or self.authority
        return issuer.issue(self._folder / name, str(ClientName(CLUSTER, name)), trusted=trusted)

    def keep_copy(self, name: str) -> Path:
        """A folder with what the files of a client hold now."""
        copy = self._folder / f"{name}-before"
        copy.mkdir(exist_ok=True)
        for file in (self._folder / name).iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        return copy

    def settings(self, broker: int) -> dict[str, Any]:
        """What a broker's settings say of them."""
        folder = self._folder / f"broker-{broker}"
        return {
            "peer_tls": "mutual",
            "authentication": "required",
            "superusers": f"user:{ADMINISTRATOR}",
            "tls_certificate": str(folder / "tls.crt"),
            "tls_key": str(folder / "tls.key"),
            "tls_authorities": str(folder / "ca.crt"),
        }

    def tls(self, name: str = "load") -> tidelog.Tls:
        """The files of a client."""
        return tls_in(self._folder / name)

    @property
    def token(self) -> Path:
        """The file of the token of the clients that write and read."""
        return self._folder / "load" / "token"

    def environment(self) -> dict[str, str]:
        """For the command line, as the administrator."""
        files = self._folder / ADMINISTRATOR
        return {
            **os.environ,
            "TIDELOG_CLIENT_TLS_AUTHORITIES": str(files / "ca.crt"),
            "TIDELOG_CLIENT_TLS_CERTIFICATE": str(files / "tls.crt"),
            "TIDELOG_CLIENT_TLS_KEY": str(files / "tls.key"),
        }

    # --- what the cluster knows

    async def begin(self, admin: tidelog.Client) -> None:
        """Allows the load what it does, and gives it a token."""
        await admin.change_acl(
            add=[
                AclRule(principal=LOAD, operation=Operation.ALL, resource=Resource.STREAM, prefix=True),
                AclRule(principal=LOAD, operation=Operation.ADMIN, resource=Resource.CLUSTER),
            ]
        )
        await self.renew_token(admin)

    async def renew_token(self, admin: tidelog.Client) -> str:
        """Replaces the token in the file; the answer is the id of the new token."""
        made = await admin.create_token(LOAD)
        new = self.token.with_suffix(".new")
        new.write_text(made.token)
        new.replace(self.token)
        return made.description.token_id


def tls_in(folder: Path) -> tidelog.Tls:
    """The files in a folder of a client."""
    return tidelog.Tls(authorities=folder / "ca.crt", certificate=folder / "tls.crt", key=folder / "tls.key")
