"""HTTP beside gRPC: /metrics, /healthz, /readyz and /debug/state.

A few requests a minute from a scraper, a kubelet and people: the standard library's
WSGI server in a thread of its own is plenty. Health, readiness and state are asked for on
the event loop, where they live; metrics are read from here, number by number.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from tidelog_broker.metrics import Metrics

CONNECTIONS_MAX = 32
"""At a time; others are closed at once."""

LOOP_TIMEOUT_SECONDS = 5
"""A loop that does not answer for this long is not healthy."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or sent no HTTP, is no news."""


class _QuietHandler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Scrapes are no news."""


class HttpDoor:
    """See the module. The callbacks run on the event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        *,
        ready: Callable[[], str | None],
        state: Callable[[], Any],
    ) -> None:
        """Binds the address; raises OSError if that cannot be.

        `ready` gives None or the reason why not; `state` what the broker believes, for JSON.
        """
        self._loop = asyncio.get_running_loop()
        self._metrics = make_wsgi_app(metrics.registry)
        self._ready = ready
        self._state = state
        self._server = make_server(host, port, self._app, server_class=_Server, handler_class=_QuietHandler)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="tidelog-http", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks for up to a tenth of a second."""
        self._server.shutdown()
        self._server.server_close()

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        try:
            if path == "/metrics":
                # Here, not on the loop: thousands of partitions take a while to write down.
                return list(self._metrics(environ, start_response))
            if path == "/healthz":
                self._on_loop(lambda: None)
                return _plain(start_response, "200 OK", "ok\n")
            if path == "/readyz":
                reason = self._on_loop(self._ready)
                return _plain(
                    start_response, "503 Not Ready" if reason else "200 OK", f"{reason or 'ready'}\n"
                )
            if path == "/debug/state":
                body = json.dumps(self._on_loop(self._state), indent=2)
                return _plain(start_response, "200 OK", body + "\n", "application/json")
        except TimeoutError:
            return _plain(start_response, "503 Busy", "the broker's event loop does not answer\n")
        return _plain(start_response, "404 Not Found", "/metrics /healthz /readyz /debug/state\n")

    def _on_loop(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(LOOP_TIMEOUT_SECONDS)


def _plain(
    start_response: Callable[..., Any], status: str, body: str, kind: str = "text/plain; charset=utf-8"
) -> Iterable[bytes]:
    data = body.encode()
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(data)))])
    return [data]
