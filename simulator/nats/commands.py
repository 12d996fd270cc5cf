"""The client protocol of NATS as a server reads it: from bytes to commands.

The other direction is `tidelog_broker.nats.parser`. Servers use this module, and `answers` to read the bytes
of brokers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LINE_BYTES_MAX: Final = 4096
"""`max_control_line` of a real server."""

_PAYLOADS: Final = {"PUB": 1, "HPUB": 2, "RMSG": 2}
"""Commands with a payload, and how many sizes are at the end of their line."""


class Malformed(Exception):
    """The bytes are no command. `str()` is the error that a server sends."""


class Command(NamedTuple):
    """One line, with its message."""

    verb: str
    """In capitals."""
    words: tuple[bytes, ...]
    """The words of the line, without the sizes."""
    headers: bytes = b""
    """The raw header block; empty: there is none."""
    payload: bytes = b""
    text: bytes = b""
    """The line behind the verb, unparsed. That of CONNECT is JSON."""


class Commands:
    """The commands of one connection."""

    def __init__(self, payload_bytes_max: int) -> None:
        self._payload_max = payload_bytes_max
        self._bytes = bytearray()
        self._head: tuple[str, tuple[bytes, ...], int, int] | None = None
        """A command that waits for its payload: verb, words, bytes of the headers, bytes in all."""

    def take(self, data: bytes) -> list[Command]:
        """Returns the commands that `data` completes. Raises Malformed; later bytes cannot be parsed then."""
        self._bytes += data
        found = []
        while (command := self._next()) is not None:
            found.append(command)
        return found

    def _next(self) -> Command | None:
        if self._head is None:
            end = self._bytes.find(b"\r\n")
            if end < 0 or end > LINE_BYTES_MAX:
                if len(self._bytes) > LINE_BYTES_MAX:
                    raise Malformed("Maximum Control Line Exceeded")
                return None
            line = bytes(self._bytes[:end])
            del self._bytes[: end + 2]
            name, _, text = line.partition(b" ")
            verb = name.decode("ascii", "replace").upper()
            words = tuple(text.split())
            sizes = _PAYLOADS.get(verb, 0)
            if not sizes:
                return Command(verb, words, text=text)
            self._head = self._sized(verb, words, sizes)
        verb, words, headers, size = self._head
        if len(self._bytes) < size + 2:
            return None
        body = bytes(self._bytes[:size])
        if self._bytes[size : size + 2] != b"\r\n":
            raise Malformed("Unknown Protocol Operation")
        del self._bytes[: size + 2]
        self._head = None
        return Command(verb, words, body[:headers], body[headers:])

    def _sized(
        self, verb: str, words: tuple[bytes, ...], sizes: int
    ) -> tuple[str, tuple[bytes, ...], int, int]:
        try:
            numbers = [int(word) for word in words[-sizes:]]
        except ValueError:
            raise Malformed("Parser Error") from None
        names = words[:-sizes]
        if len(numbers) < sizes or min(numbers) < 0 or len(names) not in (1, 2):
            raise Malformed("Parser Error")
        headers, size = (numbers[0], numbers[1]) if sizes == 2 else (0, numbers[0])
        if headers > size:
            raise Malformed("Parser Error")
        if size > self._payload_max:
            raise Malformed("Maximum Payload Violation")
        return verb, names, headers, size


def message(subject: bytes, sid: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """The bytes of a message to a client: MSG or HMSG."""
    words = b"%b %b %b" % (subject, sid, reply) if reply else b"%b %b" % (subject, sid)
    if not headers:
        return b"MSG %b %d\r\n%b\r\n" % (words, len(payload), payload)
    total = len(headers) + len(payload)
    return b"HMSG %b %d %d\r\n%b%b\r\n" % (words, len(headers), total, headers, payload)


def routed(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """The bytes of a message to another server."""
    words = b"%b %b" % (subject, reply) if reply else subject
    total = len(headers) + len(payload)
    return b"RMSG %b %d %d\r\n%b%b\r\n" % (words, len(headers), total, headers, payload)
