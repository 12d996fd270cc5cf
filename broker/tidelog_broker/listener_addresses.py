"""Reads the addresses in the settings: listeners, and hosts with ports.

Neighbours: `config.checks` checks settings with it, `service` and `assembly` bind what it returns.
"""

from __future__ import annotations

from typing import Final

PORT_MAX: Final = 65535

PLUS_ID: Final = "+id"
"""Behind an advertised port: broker 2 advertises a port that is higher by 2."""


def parse_listen(spec: str, broker_id: int = 0) -> tuple[str, str, int, str, int | None]:
    """``name=host:port[@advertised-host[:port[+id]]]`` → name, host, port, advertised host, advertised port.

    Port 0 takes a free port. IPv6 hosts stand in brackets. Raises ValueError with what would be right.
    """
    name, equals, rest = spec.partition("=")
    if not equals:
        name, rest = "internal", spec
    address, at, advertised = rest.partition("@")
    host, port = _host_port(address, spec)
    if port is None:
        raise ValueError(
            f"listener {spec!r} has no port; write name=host:port, for example {name}={host}:9210"
        )
    shown_host, shown_port = _host_port(advertised.removesuffix(PLUS_ID), spec) if at else (host, None)
    if advertised.endswith(PLUS_ID):
        if shown_port is None or shown_port + broker_id > PORT_MAX:
            raise ValueError(
                f"listener {spec!r}: {PLUS_ID!r} must stand behind a port, and the port plus the broker's id "
                f"must be at most {PORT_MAX}"
            )
        shown_port += broker_id
    if not name.replace("-", "").isalnum():
        raise ValueError(f"listener name {name!r} is not valid; use only letters, digits and '-'")
    return name, host, port, shown_host, shown_port


def parse_address(address: str) -> tuple[str, int]:
    """``host:port`` → both; raises ValueError with what would be right."""
    host, port = _host_port(address, address)
    if port is None:
        raise ValueError(f"address {address!r} has no port; write host:port, for example 127.0.0.1:9211")
    return host, port


def _host_port(address: str, spec: str) -> tuple[str, int | None]:
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
        if not bracket:
            raise ValueError(
                f"{spec!r}: the closing bracket of the IPv6 address is missing; write [address]:port"
            )
    else:
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
    if not host:
        raise ValueError(
            f"{spec!r} has no host; write 127.0.0.1 for this machine only, or 0.0.0.0 for all its addresses"
        )
    if not port:
        return host, None
    # ASCII and short: int() refuses other digits, and thousands of them.
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= PORT_MAX):
        raise ValueError(f"{spec!r}: {port!r} is not a port; write a number up to {PORT_MAX}")
    return host, int(port)
