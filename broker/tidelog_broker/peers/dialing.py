"""Opens a connection to another broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.errors import PeerRefused, PeerUnreachable, WrongPeer
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity
from tidelog_broker.tls.credentials import Credentials


async def dial(
    host: str,
    port: int,
    me: Callable[[], Identity],
    kind: ConnectionKind,
    *,
    target: int | None,
    timeout_s: float,
    message: bytes = b"",
    tls: Credentials | None = None,
) -> PeerConnection:
    """A connection on which both ends have greeted; `serve` it before the next await.

    Raises `PeerRefused`, `PeerUnreachable`, `WrongPeer`, `ProtocolBroken`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            hello = Hello(me(), kind, target=target, message=message)
            if tls is not None and tls.permissive:
                try:
                    return await _connect(host, port, me, hello, tls, tls.client)
                except ConnectionRefusedError:
                    raise
                except (ConnectionError, ssl.SSLEOFError):
                    # It took the beginning of the handshake for a broken frame.
                    return await _connect(host, port, me, hello, tls, None)
            return await _connect(host, port, me, hello, tls, None if tls is None else tls.client)
    except ConnectionRefusedError as error:
        raise PeerRefused(f"{host}:{port} refuses connections") from error
    except TimeoutError as error:
        raise PeerUnreachable(f"{host}:{port} did not answer within {timeout_s:g} s") from error
    except ssl.SSLError as error:
        raise WrongPeer(f"{host}:{port} is not trusted: {reason_of(error)}") from error
    except OSError as error:
        raise PeerUnreachable(f"{host}:{port} cannot be reached: {error.strerror or error}") from error


async def _connect(
    host: str,
    port: int,
    me: Callable[[], Identity],
    hello: Hello,
    tls: Credentials | None,
    context: ssl.SSLContext | None,
) -> PeerConnection:
    """`context`: for TLS; None: without TLS."""
    # Made here, because it must be ended even if it is given up between `connection_made` and the return
    # of `create_connection`: its timer runs already.
    connection = PeerConnection(me, hello=hello, tls=tls)
    try:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, host, port, ssl=context)
        await asyncio.shield(connection.greeted)
    except BaseException:
        connection.abort("given up")
        raise
    return connection


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake failed, in the words of OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate cannot be verified ({error.verify_message})"
    return f"TLS failed ({(error.reason or str(error)).replace('_', ' ').lower()})"
