"""HTTP for monitoring and probes: /metrics, /healthz and /readyz.

The server runs on the event loop that does all other work, so an answer shows that the loop runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

log = structlog.get_logger(__name__)

CONNECTIONS_WAITING_MAX: Final = 64
"""Connections that wait to be accepted."""

IDLE_SECONDS_MAX: Final = 10.0
"""How long an idle connection stays open."""


class ListenError(Exception):
    """The server cannot listen on the configured address; the message says why."""


def parse_address(text: str) -> tuple[str, int]:
    """Splits ``host:port``; port 0 means any free port. Raises `ListenError`, which says what would be
    right."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise ListenError(f"{text!r} is not an address. Write host:port, for example 127.0.0.1:9215.")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ListenError(f"{port!r} in {text!r} is not a port. A port is a number from 0 to 65535.")
    return host, int(port)


class HttpServer:
    """Serves the three paths; an async context manager."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, why_not: Callable[[], str]) -> None:
        """`why_not`: returns why the operator is not ready; empty: it is ready."""
        self._host, self._port = host, port
        self._registry = registry
        self._why_not = why_not
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._health),
                web.get("/readyz", self._readiness),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=IDLE_SECONDS_MAX)

    async def __aenter__(self) -> HttpServer:
        """Raises `CannotListen`."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=CONNECTIONS_WAITING_MAX)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ListenError(
                f"Cannot listen on {self._host}:{self._port}: {reason}. Choose another address, or an empty "
                "one."
            ) from error
        host, port, *_ = self._runner.addresses[0]
        log.info("serving /metrics, /healthz and /readyz", address=f"{host}:{port}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readiness(self, _: web.Request) -> web.Response:
        why_not = self._why_not()
        return web.Response(status=503 if why_not else 200, text=f"{why_not or 'ready'}\n")
