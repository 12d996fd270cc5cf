"""What can go wrong between the broker and a NATS server, sorted by what the caller can do.

Every error answers two questions. ``retriable``: may the same call succeed later, unchanged?
``definite``: is it certain that the call had no effect? The parser (``parser``), the header
and subject rules (``headers``, ``subjects``) and the connection (``connection``) raise these.
"""

from typing import ClassVar


class NatsError(Exception):
    """The root of this package's errors."""

    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = True


class ProtocolError(NatsError):
    """The server sent bytes that are not the NATS protocol, or more of them than we accept.

    The connection that received them cannot be trusted further and has to be replaced.
    """

    def __init__(self, reason: str, offending: bytes) -> None:
        self.reason = reason
        self.offending = offending[:OFFENDING_BYTES_MAX]
        """The bytes at fault, cut after OFFENDING_BYTES_MAX."""
        super().__init__(f"{reason}: {self.offending.decode('utf-8', 'backslashreplace')!r}")


class HeadersInvalid(NatsError):
    """A header block, or a header about to become one, is not in the form NATS prescribes."""

    def __init__(self, reason: str, offending: bytes) -> None:
        self.reason = reason
        self.offending = offending[:OFFENDING_BYTES_MAX]
        """The bytes at fault, cut after OFFENDING_BYTES_MAX."""
        super().__init__(f"{reason}: {self.offending.decode('utf-8', 'backslashreplace')!r}")


class SubjectInvalid(NatsError):
    """A subject or a pattern cannot be used. ``str()`` is one sentence for the person who wrote it."""

    def __init__(self, subject: bytes, reason: str) -> None:
        self.subject = subject
        self.reason = reason
        shown = subject[:OFFENDING_BYTES_MAX].decode("utf-8", "backslashreplace")
        super().__init__(f"subject {shown!r} {reason}")


class ServerAddressInvalid(NatsError):
    """An address in the list of servers cannot be understood. Credentials never appear in the text."""


class NatsNotConnected(NatsError):
    """There is no connection at the moment; it is being made again in the background."""

    retriable = True


class ConnectionClosed(NatsError):
    """``close()`` was called: this connection will not come back."""


class NatsConnectionLost(NatsError):
    """The connection broke while the call waited for the server's answer."""

    retriable = True
    definite = False


class NatsTimeout(NatsError):
    """The server did not answer in time."""

    retriable = True
    definite = False


class WriteBufferFull(NatsError):
    """The server reads more slowly than we write. Nothing of this call was queued."""

    retriable = True


class PayloadTooLarge(NatsError):
    """The message is larger than the server's ``max_payload``: sending it would end the connection."""


class HandshakeFailed(NatsError):
    """The server was reached, but did not let us in."""

    retriable = True

    def __init__(self, reason: str, *, credentials_refused: bool) -> None:
        self.credentials_refused = credentials_refused
        """Whether trying again soon is pointless, because the server refuses who we are."""
        super().__init__(reason)


OFFENDING_BYTES_MAX = 64
"""How much of hostile or broken input an error carries along. Bytes."""
