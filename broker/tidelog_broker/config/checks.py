"""Checks of single settings. Each returns the value, or raises ValueError with what would be right.

Neighbour: `settings` applies them.
"""

from __future__ import annotations

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
