"""What a node says, and when it may: at once, or when the disk has what it speaks of.

A promise (a vote, an acknowledgement) is held until everything is on disk that the node
knew when it was made: that is what the ready has made durable with which it is taken.
"""

from __future__ import annotations

from tidelog_broker.core.raft.messages import AppendResponse, Message


class Outbox:
    """See the module. One taking is outstanding at a time."""

    __slots__ = ("_after", "_held", "_now")

    def __init__(self) -> None:
        self._now: list[Message] = []
        self._after: list[Message] = []
        self._held: list[Message] = []
        """Taken, and waiting for the disk."""

    def __bool__(self) -> bool:
        return bool(self._now or self._after)

    def say_now(self, message: Message) -> None:
        """What rests on nothing that is not on disk."""
        self._now.append(message)

    def say(self, message: Message) -> None:
        """Once everything is on disk that the message speaks of."""
        self._after.append(message)

    def forget_acknowledgements(self) -> None:
        """A new term began: the entries that they speak of may be replaced before they are written."""
        self._after = [message for message in self._after if not isinstance(message, AppendResponse)]

    def take(self) -> tuple[Message, ...]:
        """What may go at once; the rest is held until `release`."""
        taken = tuple(self._now)
        self._now, self._held, self._after = [], self._after, []
        return taken

    def release(self) -> tuple[Message, ...]:
        """The disk has it: what was held may go."""
        released, self._held = tuple(self._held), []
        return released
