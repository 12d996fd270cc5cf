"""A server's connection to a client: commands, messages that wait, and the limits of a slow consumer."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from simulator.nats.commands import Command, Commands, Malformed, message
from simulator.nats.interest import is_subject
from simulator.nats.router import Router

PAYLOAD_BYTES_MAX: Final = 1 << 20
"""`max_payload`."""

WRITE_SECONDS_MAX: Final = 10.0
"""`write_deadline`: how long a client may take no bytes."""

PING_SECONDS: Final = 5.0
PINGS_UNANSWERED_MAX: Final = 2

NO_RESPONDERS: Final = b"NATS/1.0 503\r\n\r\n"

SLOW: Final = "Slow Consumer"
STALE: Final = "Stale Connection"


class ServedClient(asyncio.Protocol):
    """The connection of one client."""

    def __init__(
        self, router: Router, info: dict[str, Any], pending_bytes_max: int, given_up: Callable[[str], None]
    ) -> None:
        """`info` is sent first. `given_up` is called with the reason when the server closes the
        connection."""
        self._router = router
        self._info = info
        self._pending_bytes_max = pending_bytes_max
        self._given_up = given_up
        self._transport: Any = None
        self._commands = Commands(PAYLOAD_BYTES_MAX)
        self.subscriptions: dict[bytes, bytes] = {}
        """Pattern by sid."""
        self._left: dict[bytes, int] = {}
        """By sid: how many messages a subscription still gets (`UNSUB sid max`)."""
        self._options: dict[str, Any] = {}
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._pressed: asyncio.TimerHandle | None = None
        """Set while the connection takes no more bytes; it then closes the connection."""
        self._scheduled = False
        self._pings = 0
        self._pinging: asyncio.TimerHandle | None = None
        self.closed = False

    def __repr__(self) -> str:
        number = self._info["client_id"]
        return f"<ServedClient {number} subscriptions={len(self.subscriptions)} pending={self._out_bytes}>"

    # --- of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        # Bytes that the connection does not take at once wait here, where they are counted.
        self._transport.set_write_buffer_limits(high=0)
        self._router.joined(self)
        self._send(b"INFO " + json.dumps(self._info).encode() + b"\r\n")
        self._ping_later()

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        self._pings = 0
        try:
            for command in self._commands.take(data):
                self._obey(command)
        except Malformed as error:
            self.end(str(error))

    def pause_writing(self) -> None:
        loop = asyncio.get_running_loop()
        self._pressed = loop.call_later(WRITE_SECONDS_MAX, self.end, SLOW)

    def resume_writing(self) -> None:
        if self._pressed is not None:
            self._pressed.cancel()
            self._pressed = None
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    # --- commands of the client

    def _obey(self, command: Command) -> None:
        words = command.words
        match command.verb:
            case "CONNECT":
                self._options = json.loads(command.text)
                if self._options.get("verbose"):
                    self._send(b"+OK\r\n")
            case "PING":
                self._send(b"PONG\r\n")
            case "PONG":
                pass
            case "SUB" if len(words) == 2:
                self._subscribe(*words)
            case "UNSUB" if len(words) == 1:
                self._unsubscribe(words[0])
            case "UNSUB" if len(words) == 2 and words[0] in self.subscriptions:
                self._left[words[0]] = int(words[1])
            case "PUB" | "HPUB":
                self._publish(command)
            case "UNSUB":
                pass
            case _:
                raise Malformed("Unknown Protocol Operation")

    def _subscribe(self, pattern: bytes, sid: bytes) -> None:
        if not is_subject(pattern, wildcards=True):
            self._send(b"-ERR 'Invalid Subject'\r\n")
            return
        self._unsubscribe(sid)
        self.subscriptions[sid] = pattern
        self._router.wanted(pattern)

    def _unsubscribe(self, sid: bytes) -> None:
        self._left.pop(sid, None)
        pattern = self.subscriptions.pop(sid, None)
        if pattern is not None:
            self._router.unwanted(pattern)

    def _publish(self, command: Command) -> None:
        subject, reply = command.words[0], command.words[1] if len(command.words) == 2 else b""
        if not is_subject(subject, wildcards=False):
            self._send(b"-ERR 'Invalid Publish Subject'\r\n")
            return
        echo = self._options.get("echo", True)
        heard = self._router.publish(
            subject, reply, command.headers, command.payload, besides=None if echo else self
        )
        if not heard and reply and self._options.get("no_responders"):
            self._router.deliver(reply, b"", NO_RESPONDERS, b"", only=self)

    # --- messages to the client

    def deliver(self, sid: bytes, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Sends a message for one of its subscriptions."""
        left = self._left.get(sid)
        self._send(message(subject, sid, reply, headers, payload))
        if left is not None:
            self._left[sid] = left - 1
            if left == 1:
                self._unsubscribe(sid)

    def _send(self, frame: bytes) -> None:
        if self.closed:
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > self._pending_bytes_max:
            self.end(SLOW)
        elif not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._flush()

    def _flush(self) -> None:
        if not self.closed and self._out and self._pressed is None:
            data = b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self._transport.write(data)

    # --- the end of the connection

    def _ping_later(self) -> None:
        self._pinging = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)

    def _ping(self) -> None:
        if self._pings >= PINGS_UNANSWERED_MAX:
            self.end(STALE)
            return
        self._pings += 1
        self._send(b"PING\r\n")
        if not self.closed:
            self._ping_later()

    def end(self, reason: str) -> None:
        """The server closes the connection. Messages that waited for it are lost."""
        if self.closed:
            return
        self._given_up(reason)
        self._forget()
        self._transport.write(b"-ERR '%b'\r\n" % reason.encode())
        self._transport.close()

    def _forget(self) -> None:
        self.closed = True
        self._out.clear()
        self._out_bytes = 0
        for timer in (self._pressed, self._pinging):
            if timer is not None:
                timer.cancel()
        for sid in list(self.subscriptions):
            self._unsubscribe(sid)
        self._router.left(self)
