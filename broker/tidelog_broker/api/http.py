"""HTTP beside gRPC: /metrics, /healthz, /readyz and /debug/state.

There are only a few requests a minute, from a scraper, a kubelet and people, so the standard library's
WSGI server in its own threads is enough. Health, readiness and state are read on
the event loop, where they change; metrics are read in these threads, number by number.

If a probe gets no answer, a healthy broker is killed. So no client may keep others out, however slow it
is: each connection must end within a limit of time, and when all connections are taken, the oldest of those
that wait for their client is closed for a new one. A probe sends its request at once and reads
its answer at once, so it is never closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from socketserver import ThreadingMixIn
from time import monotonic
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from tidelog.errors import PermissionDenied, TidelogError, Unauthenticated, Unavailable
from tidelog.model.access import Operation
from tidelog_broker.api.access_control import AccessControl
from tidelog_broker.metrics import Metrics
from tidelog_broker.tls.following import FollowedFiles

PAGES_MAX = 4
"""Answers of /metrics and /debug/state that are made at a time; they take a while, and probes need room."""

LOOP_TIMEOUT_SECONDS = 5
"""A loop that does not answer for this long is not healthy."""

CREDENTIALS_SECONDS_MAX = 4.0
"""So long a source of identities may take, such as the API server of Kubernetes."""

POLL_SECONDS = 0.1
"""How often connections are looked at that took too long."""

CONNECTION = "tidelog.connection"
"""The key under which a request finds its connection."""


class _Connection:
    """One client's; HTTP/1.0, so it has one request."""

    __slots__ = ("deadline", "socket", "waits")

    def __init__(self, accepted: socket.socket, deadline: float) -> None:
        self.socket = accepted
        self.deadline = deadline
        """On the monotonic clock. Seconds."""
        self.waits = True
        """For its client, to send or to read; else the broker makes the answer."""

    def cut(self) -> None:
        """Ends it for the thread that reads or writes it."""
        with contextlib.suppress(OSError):
            # Not the method of a socket with TLS: that is not for a thread other than its reader's.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(
        self,
        address: tuple[str, int],
        connections_max: int,
        seconds_max: float,
        tls: FollowedFiles | None,
    ) -> None:
        self._connections_max = connections_max
        self._seconds_max = seconds_max
        self._tls = tls
        self._lock = threading.Lock()
        self._open: dict[Any, _Connection] = {}
        """By the address of the client. The longest open first."""
        super().__init__(address, _QuietHandler)

    def connection(self, request: socket.socket, client_address: Any) -> _Connection:
        """The slot of a request that is being served; if the request was cut meanwhile, an uncounted slot."""
        with self._lock:
            return self._open.get(client_address) or _Connection(request, 0.0)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._take_room(request, client_address):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(client_address, None)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        secured = self._tls.now().server.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        try:
            # From here on `request` has no socket any more.
            self.connection(request, client_address).socket = secured
            secured.do_handshake()
            super().finish_request(secured, client_address)
        finally:
            self.shutdown_request(secured)

    def _take_room(self, request: socket.socket, client_address: Any) -> bool:
        """False: every connection's answer is being made, and this one has to come again."""
        with self._lock:
            if len(self._open) >= self._connections_max:
                waiting = [address for address, one in self._open.items() if one.waits]
                if not waiting:
                    return False
                self._open.pop(waiting[0]).cut()
            self._open[client_address] = _Connection(request, monotonic() + self._seconds_max)
            return True

    def service_actions(self) -> None:
        """Now and then, in the thread that accepts."""
        now = monotonic()
        with self._lock:
            for one in self._open.values():
                if one.deadline > now:
                    break
                one.cut()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or sent no HTTP, is no news."""


class _QuietHandler(WSGIRequestHandler):
    server: _Server

    def get_environ(self) -> dict[str, Any]:
        return {
            **super().get_environ(),
            CONNECTION: self.server.connection(self.request, self.client_address),
        }

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Scrapes are no news."""


class HttpDoor:
    """The HTTP server of a broker. The callbacks run on the event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        *,
        ready: Callable[[], str | None],
        state: Callable[[], Any],
        connections_max: int = 32,
        seconds_max: float = 10.0,
        control: AccessControl,
        tls: FollowedFiles | None = None,
    ) -> None:
        """Binds the address; raises OSError if that cannot be.

        `ready` gives None or the reason why not; `state` what the broker believes, for JSON.
        `seconds_max`: from the opening of a connection to the end of its answer. `control`: what
        callers may see; `tls`: None: without TLS.
        """
        self._loop = asyncio.get_running_loop()
        self._metrics = make_wsgi_app(metrics.registry)
        self._ready = ready
        self._state = state
        self._control = control
        self._pages = threading.BoundedSemaphore(PAGES_MAX)
        self._server = _Server((host, port), connections_max, seconds_max, tls)
        self._server.set_app(self._app)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": POLL_SECONDS},
            name="tidelog-http",
            daemon=True,
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks for up to a tenth of a second."""
        self._server.shutdown()
        self._server.server_close()

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection: _Connection = environ[CONNECTION]
        connection.waits = False
        try:
            return self._answer(environ, start_response)
        finally:
            # What is left is for the client to read.
            connection.waits = True

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        try:
            if path == "/healthz":
                self._on_loop(lambda: None)
                return _plain(start_response, "200 OK", "ok\n")
            if path == "/readyz":
                reason = self._on_loop(self._ready)
                return _plain(
                    start_response, "503 Not Ready" if reason else "200 OK", f"{reason or 'ready'}\n"
                )
            if path in ("/metrics", "/debug/state"):
                refusal = self._refusal(environ)
                if refusal is not None:
                    return _refused(start_response, refusal)
                return self._page(path, environ, start_response)
        except TimeoutError:
            return _plain(start_response, "503 Busy", "the event loop of the broker does not answer\n")
        return _plain(start_response, "404 Not Found", "/metrics /healthz /readyz /debug/state\n")

    def _page(
        self, path: str, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if not self._pages.acquire(blocking=False):
            return _plain(
                start_response,
                "503 Busy",
                f"{PAGES_MAX} pages are being written already; try again\n",
            )
        try:
            if path == "/metrics":
                # Here, not on the loop: thousands of partitions take a while to write down.
                return list(self._metrics(environ, start_response))
            body = json.dumps(self._on_loop(self._state), indent=2)
            return _plain(start_response, "200 OK", body + "\n", "application/json")
        finally:
            self._pages.release()

    def _refusal(self, environ: dict[str, Any]) -> TidelogError | None:
        """Why the caller may not see what this broker and its metrics show; None: it may (A5)."""

        async def check() -> TidelogError | None:
            try:
                async with asyncio.timeout(CREDENTIALS_SECONDS_MAX):
                    access = await self._control.admit(*_credentials_in(environ), just_verified=True)
                access.check_cluster(Operation.DESCRIBE)
            except TimeoutError:
                return Unavailable(
                    "the credentials of this request could not be checked within "
                    f"{CREDENTIALS_SECONDS_MAX:g} s; try again later"
                )
            except TidelogError as error:
                return error
            return None

        return asyncio.run_coroutine_threadsafe(check(), self._loop).result(LOOP_TIMEOUT_SECONDS)

    def _on_loop(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(LOOP_TIMEOUT_SECONDS)


def _credentials_in(environ: dict[str, Any]) -> tuple[str, tuple[bytes, ...]]:
    """As `identity.authentication` wants them."""
    connection: _Connection = environ[CONNECTION]
    found = connection.socket.getpeercert(True) if isinstance(connection.socket, ssl.SSLSocket) else None
    certificate = () if found is None else (ssl.DER_cert_to_PEM_cert(found).encode(),)
    return environ.get("HTTP_AUTHORIZATION", ""), certificate


def _refused(start_response: Callable[..., Any], error: TidelogError) -> Iterable[bytes]:
    if isinstance(error, Unauthenticated):
        status, headers = "401 Unauthorized", [("WWW-Authenticate", "Bearer")]
    elif isinstance(error, PermissionDenied):
        status, headers = "403 Forbidden", []
    else:
        status, headers = "503 Unavailable", []
    return _plain(start_response, status, f"{error.message}\n", headers=headers)


def _plain(
    start_response: Callable[..., Any],
    status: str,
    body: str,
    kind: str = "text/plain; charset=utf-8",
    headers: Sequence[tuple[str, str]] = (),
) -> Iterable[bytes]:
    data = body.encode()
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(data))), *headers])
    return [data]
