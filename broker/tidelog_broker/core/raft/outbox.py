"""The messages of a node, and when each may be sent: at once, or when the disk has what it promises.

A promise (a vote, an acknowledgement) is held until everything is on disk that the node
knew when it made the promise: the ready that takes the promise persists exactly that.
"""

from __future__ import annotations

from tidelog_broker.core.raft.messages import AppendResponse, Message


class Outbox:
    """Messages that wait for the next ready, and those that wait for the disk. One ready is outstanding."""

    __slots__ = ("_after", "_held", "_now")

    def __init__(self) -> None:
        self._now: list[Message] = []
        self._after: list[Message] = []
        self._held: list[Message] = []
        """Taken, and waiting for the disk."""

    def __bool__(self) -> bool:
        return bool(self._now or self._after)

    def __repr__(self) -> str:
        return f"<Outbox now={len(self._now)} after={len(self._after)} held={len(self._held)}>"

    def send_now(self, message: Message) -> None:
        """For a message that promises nothing that is not on disk."""
        self._now.append(message)

    def send(self, message: Message) -> None:
        """Holds `message` until everything that it promises is on disk."""
        self._after.append(message)

    def drop_acknowledgements(self) -> None:
        """A new term began: the acknowledged entries may be replaced before they are written."""
        self._after = [message for message in self._after if not isinstance(message, AppendResponse)]

    def take(self) -> tuple[Message, ...]:
        """The messages that may be sent at once; the rest is held until `release`."""
        taken = tuple(self._now)
        self._now, self._held, self._after = [], self._after, []
        return taken

    def release(self) -> tuple[Message, ...]:
        """The disk has everything: the held messages may be sent."""
        released, self._held = tuple(self._held), []
        return released
