"""The options that say where a cluster is and how to connect to it. Pure: `cluster` connects."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog import Tls
from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given

SERVERS: Final = "tidelog.bootstrap.servers"
TLS: Final = "tidelog.tls"
TLS_AUTHORITIES: Final = "tidelog.tls.authorities"
TLS_CERTIFICATE: Final = "tidelog.tls.certificate"
TLS_KEY: Final = "tidelog.tls.key"
TOKEN_FILE: Final = "tidelog.token.file"

NAMES: Final = (SERVERS, TLS, TLS_AUTHORITIES, TLS_CERTIFICATE, TLS_KEY, TOKEN_FILE)


class Servers(NamedTuple):
    """A cluster. Picklable: tasks get it from the driver."""

    addresses: tuple[str, ...]
    """host:port of one or more brokers; the cluster names the others."""
    tls: Tls | None = None
    """Paths of files on the driver and on every executor. None: without TLS."""
    token_file: str = ""
    """The path of the token, likewise; empty: none. The token itself is no option, because Spark shows
    options in plans and logs."""


def servers_in(values: Given) -> Servers:
    """The cluster among the options. Raises `InvalidRequest` if there is none."""
    addresses = values.names(SERVERS)
    if not addresses:
        raise InvalidRequest(
            f"option {SERVERS} is missing; give the address of a broker, for example localhost:9210"
        )
    return Servers(addresses, _tls(values), values.text(TOKEN_FILE) or "")


def _tls(values: Given) -> Tls | None:
    files = {
        "authorities": values.text(TLS_AUTHORITIES) or "",
        "certificate": values.text(TLS_CERTIFICATE) or "",
        "key": values.text(TLS_KEY) or "",
    }
    given = [name for name in (TLS_AUTHORITIES, TLS_CERTIFICATE, TLS_KEY) if values.text(name)]
    if not values.boolean(TLS, default=bool(given)):
        if given:
            raise InvalidRequest(f"{TLS} is false, but {given[0]} is given; remove one of them")
        return None
    if bool(files["certificate"]) != bool(files["key"]):
        raise InvalidRequest(f"{TLS_CERTIFICATE} and {TLS_KEY} belong together; give both, or neither")
    return Tls(**files)
