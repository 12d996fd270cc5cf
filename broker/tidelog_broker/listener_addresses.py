"""Reads the addresses in the settings: listeners, and hosts with ports.

Neighbours: `config.checks` checks settings with it, `service` and `assembly` bind what it returns.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final, Literal, NamedTuple, get_args

PORT_MAX: Final = 65535

PLUS_ID: Final = "+id"
"""Behind an advertised port: broker 2 advertises a port that is higher by 2."""


ListenerTls = Literal["off", "server", "mutual"]
"""server: the broker shows its certificate; mutual: the client shows one, too."""

TLS_MARK: Final = "?tls="


class ListenerSpec(NamedTuple):
    """What the settings say of one listener."""

    name: str
    host: str
    port: int
    """0: a free port."""
    shown_host: str
    """The host that clients are told."""
    shown_port: int | None
    """The port that clients are told; None: the port that was bound."""
    tls: ListenerTls


def parse_listen(spec: str, broker_id: int = 0) -> ListenerSpec:
    """``name=host:port[@advertised-host[:port[+id]]][?tls=off|server|mutual]``, read.

    IPv6 hosts stand in brackets. Raises ValueError with what would be right.
    """
    rest, tls = _tls_of(spec)
    name, equals, address = rest.partition("=")
    if not equals:
        name, address = "internal", rest
    address, at, advertised = address.partition("@")
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
    return ListenerSpec(name, host, port, shown_host, shown_port, tls)


def _tls_of(spec: str) -> tuple[str, ListenerTls]:
    """The listener without its TLS, and its TLS."""
    rest, mark, options = spec.partition("?")
    if not mark:
        return rest, "off"
    tls = f"?{options}".removeprefix(TLS_MARK)
    for known in get_args(ListenerTls):
        if tls == known:
            return rest, known
    raise ValueError(f"{spec!r}: '?{options}' is not known; write ?tls=server, ?tls=mutual or ?tls=off")


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach an address of this host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        # A name may stand for any address.
        return False


def parse_http(spec: str) -> tuple[str, int, ListenerTls]:
    """``host:port[?tls=off|server|mutual]`` → all three; raises ValueError with what would be right."""
    address, tls = _tls_of(spec)
    return *parse_address(address), tls


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
