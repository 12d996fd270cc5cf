"""The TLS that the settings ask for: between brokers, and for clients.

Neighbours: `tls` knows files and names and no settings; `assembly` and `service` hand out what is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog_broker.config.settings import Settings
from tidelog_broker.errors import BrokerError
from tidelog_broker.listener_addresses import ListenerTls, parse_http, parse_listen
from tidelog_broker.tls.credentials import Credentials
from tidelog_broker.tls.files import TlsFiles
from tidelog_broker.tls.following import FollowedFiles


class Encryption(NamedTuple):
    """What this broker needs for connections with TLS."""

    peers: Credentials | None
    """For connections between brokers; None: without TLS."""
    clients: Mapping[ListenerTls, FollowedFiles]
    """For each kind of TLS that a listener for clients uses, or HTTP."""

    @property
    def files(self) -> tuple[FollowedFiles, ...]:
        peers = () if self.peers is None else (self.peers.files,)
        return (*peers, *self.clients.values())


def encryption_of(settings: Settings) -> Encryption:
    """Reads the files. Blocking. Raises `BrokerError` if a file is missing or cannot be used."""
    return Encryption(_for_peers(settings), files_for_clients(settings))


def _for_peers(settings: Settings) -> Credentials | None:
    if settings.peer_tls == "off":
        return None
    user = "peer_tls"
    certificate, key, authorities = (
        _path(settings, name, user) for name in ("tls_certificate", "tls_key", "tls_authorities")
    )
    return Credentials(TlsFiles(certificate, key, authorities), permissive=settings.peer_tls == "permissive")


def files_for_clients(settings: Settings) -> dict[ListenerTls, FollowedFiles]:
    """The files for each kind of TLS that a listener for clients uses, or HTTP. Blocking.

    Raises `BrokerError` if a file is missing or cannot be used.
    """
    found: dict[ListenerTls, FollowedFiles] = {}
    used = [(f"listener {spec}", parse_listen(spec).tls) for spec in settings.listeners]
    if settings.http:
        used.append((f"http {settings.http}", parse_http(settings.http)[2]))
    for user, tls in used:
        if tls == "off" or tls in found:
            continue
        certificate, key = (_path(settings, name, user) for name in ("tls_certificate", "tls_key"))
        authorities = None
        if tls == "mutual":
            name = "tls_client_authorities" if settings.tls_client_authorities else "tls_authorities"
            authorities = _path(settings, name, user)
        found[tls] = FollowedFiles(TlsFiles(certificate, key, authorities))
    return found


def _path(settings: Settings, name: str, user: str) -> Path:
    path = getattr(settings, name)
    if not path:
        raise BrokerError(f"{user} uses TLS, but {name} is empty; give the path of a PEM file")
    return Path(path)
