"""What a connection to NATS has to be told, and the addresses of servers.

It exists so that ``connection`` and ``transport`` read settled values: addresses are parsed and
credentials taken out of them here, once, and never appear in a message or a ``repr``.
"""

import ipaddress
import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from tidelog_broker.nats.errors import ServerAddressInvalid
from tidelog_broker.nats.parser import PAYLOAD_BYTES_MAX

PORT = 4222
"""Where a NATS server listens unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsSettings:
    """How to connect. The defaults suit servers in the same data centre."""

    servers: tuple[str, ...] = field(repr=False)
    """Addresses: ``nats://host:port``, ``tls://host:port``, with ``user:password@`` or ``token@`` in
    front of the host where the server asks for them. At least one."""
    name: str = "tidelog"
    """How the connection is called in the server's monitoring."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """For ``tls://`` and for servers that require TLS; default: the system's certificate authorities."""
    echo: bool = True
    """Whether our own publications come back to our own subscriptions."""
    connect_timeout_seconds: float = 2.0
    """For one attempt at one server, from the first packet to its answer to our CONNECT."""
    reconnect_wait_seconds: float = 0.1
    """Pause before the first round of attempts; each further round doubles it. Shortened at random by
    up to a half, so that many brokers do not return in step."""
    reconnect_wait_seconds_max: float = 5.0
    """Longest pause between rounds of attempts, and the pause after refused credentials."""
    ping_interval_seconds: float = 1.0
    """How often the server is asked whether it is still there."""
    pings_unanswered_max: int = 3
    """Intervals of silence after which the connection is given up and made again. What is published till then
    to a leader whose server's machine is gone is lost, or waits to be repeated."""
    write_buffer_bytes_max: int = 16 * 1024 * 1024
    """Most bytes that wait for a server that is slow or away. Beyond it, writes are refused."""
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    """Largest message accepted from the server, headers included."""


@dataclass(frozen=True, slots=True)
class Server:
    """One address to try."""

    host: str
    port: int
    tls: bool = False
    """Whether to refuse this server unless it speaks TLS."""
    tls_name: str = ""
    """The name its certificate must carry."""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def credentials(self) -> dict[str, str]:
        """Return the members of CONNECT that say who we are."""
        if self.token is not None:
            return {"auth_token": self.token}
        if self.user is not None:
            return {"user": self.user, "pass": self.password or ""}
        return {}

    def discovered(self, address: str) -> "Server":
        """Return a server this one told us about: same credentials, same demands.

        Its certificate is checked for its own name, or for ours where only its IP address is known.
        """
        found = parse_server(address)
        tls_name = self.tls_name if _is_ip(found.host) else found.host
        return replace(self, host=found.host, port=found.port, tls_name=tls_name)


def parse_server(address: str) -> Server:
    """Parse one address. Raises ServerAddressInvalid with a sentence that has no credentials in it."""
    try:
        parts = urlsplit(address if "://" in address else f"nats://{address}")
    except ValueError:
        raise ServerAddressInvalid(
            "the host in a NATS server's address is none; an IPv6 address stands in brackets, "
            "as in nats://[::1]:4222"
        ) from None
    if parts.scheme not in ("nats", "tls"):
        raise ServerAddressInvalid(
            f"the address of a NATS server must begin with nats:// or tls://, not with {parts.scheme}://"
        )
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        # What looks like the host is part of the password.
        raise ServerAddressInvalid(
            "the credentials in a NATS server's address hold '/', '?' or '#'; write %2F, %3F or %23"
        )
    host = parts.hostname
    if not host:
        raise ServerAddressInvalid(
            "the address of a NATS server has no host; write it as in nats://127.0.0.1:4222"
        )
    try:
        port = parts.port
    except ValueError:
        # Not shown: where an @ is missing, it is the password.
        raise ServerAddressInvalid(
            f"the port of NATS server {host} is not a port; write a number up to 65535, as in nats://{host}:4222"
        ) from None
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ServerAddressInvalid(
            f"the address of NATS server {host} must end after the port; leave out the rest"
        )
    user = unquote(parts.username) if parts.username is not None else None
    password = unquote(parts.password) if parts.password is not None else None
    token = None
    if user is not None and password is None:
        user, token = None, user
    return Server(host, port or PORT, parts.scheme == "tls", host, user, password, token)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
