"""Checks of single settings. Each returns the value, or raises ValueError with what would be right.

Neighbour: `settings` applies them.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from tidelog.errors import InvalidRequest
from tidelog.model.access import check_principal
from tidelog_broker.listener_addresses import parse_address, parse_http, parse_listen
from tidelog_broker.nats.errors import ServerAddressInvalid
from tidelog_broker.nats.settings import parse_server


def check_listeners(specs: list[str]) -> list[str]:
    names = [parse_listen(spec).name for spec in specs]
    if not specs:
        raise ValueError("there is no listener; give at least one, for example internal=127.0.0.1:9210")
    if len(set(names)) != len(names):
        raise ValueError(f"two listeners have the same name ({', '.join(names)}); give each its own name")
    return specs


def check_http(spec: str) -> str:
    if spec:
        parse_http(spec)
    return spec


def check_peer_listener(spec: str) -> str:
    if spec:
        parse_listen(spec)
        if "?" in spec:
            raise ValueError(
                f"{spec!r}: peer_tls says whether other brokers use TLS; write the address without '?tls='"
            )
    return spec


def check_seeds(seeds: str) -> str:
    for seed in seeds.split(","):
        if seed.strip():
            parse_address(seed.strip())
    return seeds


def check_voters(voters: int) -> int:
    if voters % 2 == 0:
        raise ValueError(f"{voters} voters tolerate no more failures than {voters - 1} do; write 1, 3 or 5")
    return voters


def check_nats(servers: str) -> str:
    for address in servers.split(","):
        if address.strip():
            try:
                parse_server(address.strip())
            except ServerAddressInvalid as error:
                raise ValueError(str(error)) from None
    return servers


def check_superusers(names: str) -> str:
    for name in split_names(names):
        try:
            check_principal(name, ("user", "serviceaccount", "oidc", "group"))
        except InvalidRequest as error:
            raise ValueError(error.message) from None
    return names


def split_names(names: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


def check_https(url: str) -> str:
    if url:
        parts = _parts_of(url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(
                f"{url!r} is not the address of an API server; write https://host:port, because tokens are "
                "sent there"
            )
    return url


def check_keys(source: str) -> str:
    if source.startswith("http://"):
        raise ValueError(
            f"{source!r} is not encrypted, so the keys could be replaced; write https://…, or a path"
        )
    if source.startswith("https://") and not _parts_of(source).hostname:
        raise ValueError(f"{source!r} has no host; write https://host/path")
    return source


def _parts_of(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not an address: {error}") from None
    return parts
