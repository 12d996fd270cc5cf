"""Opens a connection to another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.errors import PeerRefused, PeerUnreachable
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity


async def dial(
    host: str,
    port: int,
    me: Callable[[], Identity],
    kind: ConnectionKind,
    *,
    target: int | None,
    timeout_s: float,
    message: bytes = b"",
) -> PeerConnection:
    """A connection on which both ends have greeted; `serve` it before the next await.

    Raises `PeerRefused`, `PeerUnreachable`, `WrongPeer`, `ProtocolBroken`.
    """
    loop = asyncio.get_running_loop()
    # Made here, because it must be ended even if it is given up between `connection_made` and the return
    # of `create_connection`: its timer runs already.
    connection = PeerConnection(me, hello=Hello(me(), kind, target=target, message=message))
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: connection, host, port)
            await asyncio.shield(connection.greeted)
    except ConnectionRefusedError as error:
        raise PeerRefused(f"{host}:{port} refuses connections") from error
    except TimeoutError as error:
        connection.abort("it did not answer in time")
        raise PeerUnreachable(f"{host}:{port} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise PeerUnreachable(f"{host}:{port} cannot be reached: {error.strerror or error}") from error
    except BaseException:
        connection.abort("given up")
        raise
    return connection
