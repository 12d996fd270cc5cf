"""Subscriptions: what is wanted from NATS, whichever link is up.

It exists so that interest in a subject outlives the links that serve it: ``connection`` asks
for the greeting of each new link here, and hands over what the links bring.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

import structlog

from tidelog_broker.log_limit import LogLimit
from tidelog_broker.nats.counters import Counters
from tidelog_broker.nats.parser import Message

log = structlog.get_logger(__name__)

OnMessages: TypeAlias = Callable[[list[Message]], None]
"""Called with all messages of one read, at least one. It must not block; what it raises is counted and
logged, and those messages are gone."""

_REFUSED = re.compile(r'permissions violation for subscription to "(.*?)"(?: using queue "(.*?)")?$', re.I)


class Subscription:
    """Interest in a subject; made by ``NatsConnection.subscribe`` and ended by it."""

    __slots__ = ("closed", "messages_received", "on_messages", "queue", "refused", "sid", "subject")

    def __init__(self, sid: int, subject: bytes, queue: bytes | None, on_messages: OnMessages) -> None:
        self.sid = sid
        self.subject = subject
        self.queue = queue
        """The queue group: of its members, one gets each message."""
        self.on_messages = on_messages
        self.messages_received = 0
        self.refused: str | None = None
        """What the server said when it did not permit this subscription; None while it stands."""
        self.closed = False
        """Unsubscribed or draining: it will not be announced again."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"refused: {self.refused}" if self.refused else "open"
        return f"<Subscription {self.subject!r} sid={self.sid} {state} received={self.messages_received}>"

    @property
    def announcement(self) -> bytes:
        """The protocol line that starts it."""
        if self.queue is None:
            return b"SUB %b %d\r\n" % (self.subject, self.sid)
        return b"SUB %b %b %d\r\n" % (self.subject, self.queue, self.sid)

    @property
    def revocation(self) -> bytes:
        """The protocol line that ends it."""
        return b"UNSUB %d\r\n" % self.sid


class Subscriptions:
    """All subscriptions of one connection."""

    def __init__(self, counters: Counters, log_limit: LogLimit) -> None:
        self._counters = counters
        self._log_limit = log_limit
        self._by_sid: dict[int, Subscription] = {}
        self._last_sid = 0
        self._greeted: set[int] = set()
        """Those the newest link's greeting announced."""

    def __len__(self) -> int:
        return len(self._by_sid)

    def __repr__(self) -> str:
        return f"<Subscriptions {len(self)}>"

    def add(self, subject: bytes, queue: bytes | None, on_messages: OnMessages) -> Subscription:
        """Make one, with an id that was never used on this connection."""
        self._last_sid += 1
        subscription = Subscription(self._last_sid, subject, queue, on_messages)
        self._by_sid[subscription.sid] = subscription
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """Deliver nothing more to this one."""
        subscription.closed = True
        self._by_sid.pop(subscription.sid, None)

    def clear(self) -> None:
        """Remove all."""
        for subscription in list(self._by_sid.values()):
            self.remove(subscription)

    def greeting(self) -> bytes:
        """Return the lines that announce all of them on a new link."""
        wanted = [subscription for subscription in self._by_sid.values() if not subscription.closed]
        for subscription in wanted:
            subscription.refused = None
        self._greeted = {subscription.sid for subscription in wanted}
        return b"".join(subscription.announcement for subscription in wanted)

    def since_greeting(self) -> bytes:
        """Return the lines for what changed while the greeting was on its way."""
        wanted = {sid: each for sid, each in self._by_sid.items() if not each.closed}
        added = [each.announcement for sid, each in wanted.items() if sid not in self._greeted]
        removed = [b"UNSUB %d\r\n" % sid for sid in sorted(self._greeted - wanted.keys())]
        return b"".join(added + removed)

    def deliver(self, messages: dict[int, list[Message]]) -> None:
        """Hand messages to their subscriptions. Never raises."""
        counters = self._counters
        for sid, batch in messages.items():
            counters.messages_received += len(batch)
            subscription = self._by_sid.get(sid)
            if subscription is None:
                counters.messages_unclaimed += len(batch)
                continue
            subscription.messages_received += len(batch)
            try:
                subscription.on_messages(batch)
            except Exception:
                counters.handler_errors += 1
                left_out = self._log_limit.left_out("handler")
                if left_out is not None:
                    log.exception(
                        "messages from NATS were dropped: their handler failed",
                        subject=subscription.subject.decode("utf-8", "backslashreplace"),
                        messages=len(batch),
                        left_out=left_out,
                    )

    def refuse(self, complaint: str) -> None:
        """Mark those a -ERR line speaks of, if it speaks of any."""
        found = _REFUSED.search(complaint)
        if found is None:
            return
        for subscription in self._by_sid.values():
            subject = subscription.subject.decode("utf-8", "backslashreplace")
            queue = subscription.queue.decode("utf-8", "backslashreplace") if subscription.queue else None
            if (subject, queue) == (found[1], found[2]):
                subscription.refused = complaint
