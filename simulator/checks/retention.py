"""Checks of deleted records: a log start offset moves only as a client or the settings allow (R11, R18).

The age of a record is measured in simulated time, which no broker knows.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from simulator.checks.truth import Knowledge, Setup, require
from simulator.world import MS, SECOND, T0_US
from tidelog.model import Retention

if TYPE_CHECKING:
    from simulator.node import Key, Replica
    from simulator.watch.mirror import Link
    from tidelog_broker.core.metadata.image import ClusterImage, StreamImage

REMEMBERED_US: Final = 20 * SECOND
"""How long a leader may still use old settings: it may be cut off, or its disk may be slow."""

REMEMBERED_DOWN_US: Final = 60 * SECOND
"""How old the settings may be for a start that a broker finds after a restart: it was saved before the broker
ended."""

SAVED_US: Final = 10 * SECOND
"""How long a replaced leader may need to end a save that it had begun, on a slow disk or with an old
image."""

TOLERANCE_US: Final = 2 * SECOND
"""Covers clocks within `clock_skew_max` at both ends (R18), and brokers that pause while time passes."""

DATED_US: Final = 60 * SECOND
"""How far the timestamp of a batch may be from the time, also with a slow disk. Clock faults are larger."""

CLOCKS_MIN: Final = 3
"""With so many brokers a majority of clocks is right: one is wrong at a time."""

TOLD_US: Final = 5 * SECOND
"""How long a leader may use the clock that it was told."""


class _Start:
    """The log start offset of one partition."""

    def __init__(self) -> None:
        self.offset = 0
        """All records below it may be deleted."""
        self.asked = 0
        """Clients asked for the deletion of all records below it."""
        self.born: dict[tuple[int, int], int] = {}
        """By leader epoch and base offset: when a batch was first written. µs."""


class RetentionChecks(Knowledge):
    """Checks every new log start offset, and the timestamps of batches."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._starts: dict[Key, _Start] = {}
        self._retentions: dict[bytes, list[tuple[int, Retention]]] = {}
        """By stream: the retentions, each with the time when it was set."""
        self._few = True
        """Fewer than `CLOCKS_MIN` brokers are not fenced."""
        self._few_until_us = 0
        """The last time when fewer than `CLOCKS_MIN` brokers were not fenced."""

    def _start(self, key: Key) -> _Start:
        return self._starts.setdefault(key, _Start())

    def retention_set(self, stream: StreamImage) -> None:
        """A new image has this stream."""
        known = self._retentions.setdefault(stream.id, [])
        if not known or known[-1][1] != stream.config.retention:
            known.append((self.now_us(), stream.config.retention))

    def born(self, key: Key, link: Link, *, found: bool) -> None:
        """A batch was written for the first time; `found`: it was found at a start, written before the end of
        its broker."""
        dated_us, now_us = link.append_time_us - T0_US, self.now_us()
        self._start(key).born[link.epoch, link.base] = min(now_us, dated_us) if found else now_us
        off_us = dated_us - now_us
        require(
            abs(off_us) <= DATED_US or self._few_lately(),
            "R18",
            f"partition {key[1]}: the timestamp of the batch at {link.base} in epoch {link.epoch} is wrong "
            f"by {off_us // SECOND} s",
        )

    def fenced(self, image: ClusterImage) -> None:
        """The brokers of the image changed. The clocks of fenced brokers do not count."""
        if self._few:
            self._few_until_us = self.now_us()
        self._few = sum(not broker.fenced for broker in image.brokers.values()) < CLOCKS_MIN

    def _few_lately(self) -> bool:
        """Whether leaders may use the time of fewer clocks than `CLOCKS_MIN`."""
        return self._few or self.now_us() - self._few_until_us <= TOLD_US

    def start_asked(self, key: Key, offset: int) -> None:
        """A client asks for the deletion of everything below `offset`."""
        known = self._start(key)
        known.asked = max(known.asked, offset)

    def start_moved(self, replica: Replica, start: int) -> None:
        """The log start offset of a running replica is `start` now."""
        if self._is_new(replica.key, start):
            led_until = self.truth(replica.key).led_until.get(replica.node.id)
            require(
                replica.leads or (led_until is not None and self.now_us() - led_until <= SAVED_US),
                "R11",
                f"{replica.name}: broker {replica.node.id} deletes records below {start}, and does not lead",
            )
            self._judge(replica, start, REMEMBERED_US)

    def start_found(self, replica: Replica, start: int) -> None:
        """The log start offset of a replica is `start` after its recovery. It may have been saved unseen
        before."""
        if self._is_new(replica.key, start):
            self._judge(replica, start, REMEMBERED_DOWN_US)

    def _is_new(self, key: Key, start: int) -> bool:
        known = self._start(key)
        if known.offset < start <= known.asked:
            known.offset = start
            self.mark("R11 deleted by command")
        return start > known.offset

    def _judge(self, replica: Replica, start: int, remembered_us: int) -> None:
        set_so = self._in_effect(replica, remembered_us)
        reason = next(
            (why for retention in set_so if (why := self._allows(retention, replica, start, remembered_us))),
            "",
        )
        require(
            reason,
            "R18",
            f"{replica.name}: broker {replica.node.id} deletes records below {start}; no client asked for "
            "it, and the retention does not allow it: the newest of them is "
            f"{self._age_us(replica.key, start)} µs old, the log goes from "
            f"{self._start(replica.key).offset} to {replica.high_watermark}, the retention is {set_so}",
        )
        self.mark(f"R18 retention by {reason}")
        self._start(replica.key).offset = start

    def _in_effect(self, replica: Replica, remembered_us: int) -> list[Retention]:
        """The retentions of the last `remembered_us`, and the one that the leader uses."""
        found = [replica.partition.config.retention]
        until = self.now_us()
        for since, retention in reversed(self._retentions.get(replica.key[0], [])):
            if self.now_us() - until > remembered_us:
                break
            found.append(retention)
            until = since
        return list(dict.fromkeys(found))

    def _allows(self, retention: Retention, replica: Replica, start: int, remembered_us: int) -> str:
        """Why the retention allows the deletion; empty: it does not."""
        if retention.age_ms is not None:
            age = self._age_us(replica.key, start)
            if age is None or age > retention.age_ms * MS - TOLERANCE_US - 2 * self.skew_us_max:
                return "age"
        if retention.messages is not None and start <= self._reached(replica) - retention.messages:
            return "messages"
        if retention.bytes is not None:
            kept = sum(segment.size for segment in replica.log.segments if segment.next_offset > start)
            # After a crash the log may have lost records that it had when the deletion was decided.
            if kept >= retention.bytes or remembered_us == REMEMBERED_DOWN_US:
                return "bytes"
        return ""

    def _reached(self, replica: Replica) -> int:
        return max(replica.high_watermark, self.truth(replica.key).committed.end)

    def _age_us(self, key: Key, start: int) -> int | None:
        """The age of the newest batch that begins below `start`; None: it is not known."""
        links = self.truth(key).committed.links
        at = bisect_left(links, start, key=lambda link: link.base) - 1
        born = self._start(key).born.get((links[at].epoch, links[at].base)) if at >= 0 else None
        return None if born is None else self.now_us() - born
