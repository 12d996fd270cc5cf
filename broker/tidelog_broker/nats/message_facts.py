"""What a NATS message becomes as a record, or why it cannot be one."""

from __future__ import annotations

from tidelog_broker.nats.errors import NatsError
from tidelog_broker.nats.headers import Finder, parse
from tidelog_broker.nats.jetstream import Failure, unsupported_header
from tidelog_broker.nats.parser import Message
from tidelog_broker.storage.guard.replay import MESSAGE_ID_HEADER
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.record_columns import MESSAGE_ID_BYTES_MAX, Headers

_message_id = Finder(MESSAGE_ID_HEADER.encode())
_expected_stream = Finder(b"Nats-Expected-Stream")


class Refused(Exception):
    """A message that cannot be stored, and what its publisher is told."""

    def __init__(self, failure: Failure, detail: str = "") -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


def facts(message: Message, stream: str, partition: Partition) -> tuple[str, Headers, str | None]:
    """Subject, headers and message id of the record that a message becomes; raises `Refused`."""
    subject, _, block, _ = message
    try:
        name = subject.decode()
    except UnicodeDecodeError:
        raise Refused(Failure.INVALID_MESSAGE, "the subject is not UTF-8") from None
    if block is None:
        return name, (), None
    found = unsupported_header(block)
    if found is not None:
        raise Refused(Failure.UNSUPPORTED_HEADER, f"the header {found.decode()} is not supported")
    expected = _expected_stream(block)
    if expected is not None and expected != stream.encode():
        raise Refused(Failure.WRONG_STREAM, f"this stream is {stream}")
    try:
        headers = [(key.decode(), value) for key, value in parse(block)]
    except (NatsError, UnicodeDecodeError) as error:
        raise Refused(Failure.INVALID_MESSAGE, f"the headers cannot be read: {error}") from None
    message_id = None
    if partition.config.dedupe_window_ms > 0:
        raw = _message_id(block)
        if raw and len(raw) > MESSAGE_ID_BYTES_MAX:
            raise Refused(Failure.INVALID_MESSAGE, f"Nats-Msg-Id has more than {MESSAGE_ID_BYTES_MAX} bytes")
        message_id = raw.decode("utf-8", "surrogateescape") if raw else None
    return name, headers, message_id
