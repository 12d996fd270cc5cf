"""Checks of the logs of replicas: appended, replicated, truncated, recovered, quarantined (I5, I9, I14,
I15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from simulator.checks.retention import RetentionChecks
from simulator.checks.strays import StrayChecks
from simulator.checks.truth import Copy, require
from simulator.disk import CrashPoint
from simulator.watch.mirror import Mirror, headers_of
from tidelog.errors import TidelogError
from tidelog.records import verify_batch

if TYPE_CHECKING:
    from simulator.node import Key, Node, Replica


class LogChecks(StrayChecks, RetentionChecks):
    """Keeps a mirror of each log, and compares the log with it."""

    # --- at a start

    def came(self, replica: Replica) -> None:
        """A broker serves a replica that it found at its start, or a new one."""
        known = self.copies.get((replica.node.id, replica.key))
        if known is not None and known.left:
            # The image had taken the earlier replica away: this is another one.
            del self.copies[replica.node.id, replica.key]
        self.found_again(replica)
        self._opened(replica)
        self.members(replica.key)

    def _opened(self, replica: Replica) -> None:
        """A log was opened: all that it calls durable is on the disk, and nothing durable is lost (2a)."""
        disk = replica.node.disk
        for segment in replica.log.segments:
            require(
                not segment.size or disk.is_synced(segment.path),
                "2a",
                f"{replica.name} on broker {replica.node.id} says that all below "
                f"{replica.log.durable_offset} is durable; {segment.path} was not synced after its last "
                "write",
            )
        known = self.copies.get((replica.node.id, replica.key))
        copy = self.copies[replica.node.id, replica.key] = Copy()
        copy.start_offset = replica.log.start_offset
        self.start_found(replica, copy.start_offset)
        self._begin_mirror(replica, copy, None if known is None else known.mirror)
        suspect = replica.log.suspect or not self._promises(replica)
        if known is not None and not known.excused:
            require(
                replica.log.start_offset >= known.start_saved,
                "I7",
                f"{replica.name} on broker {replica.node.id}: the log start offset was {known.start_saved}, "
                f"and is {replica.log.start_offset} after the recovery",
            )
            copy.start_saved = known.start_saved
            copy.rotten = known.rotten
        if known is not None and not known.excused and not suspect:
            require(
                replica.log.end_offset >= known.durable
                and (
                    # The log of a `page-cache` stream may begin behind the flushed records.
                    known.durable < copy.mirror.start_offset
                    or copy.mirror.chain_at(known.durable) == known.mirror.chain_at(known.durable)
                ),
                "2a",
                f"{replica.name} on broker {replica.node.id} had all records below {known.durable} on disk; "
                f"after the recovery its log ends at {replica.log.end_offset} or has other records",
            )
            self.mark("2a recovered")
        if replica.log.suspect:
            self.mark("2b suspect")
        copy.excused = bool(suspect)
        copy.durable = replica.log.durable_offset
        self._history_ends(replica)

    def lost(self, broker: int, key: Key, reason: str, *, stray: bool) -> None:
        """A log could not be opened: its end, its history or its owner is unknown."""
        require(
            self.disks_are_lost or self.truth(key).forgotten,
            "I19",
            f"broker {broker} cannot open its log of partition {key[1]}, and its disk is good: {reason}",
        )
        self.mark("2d another's folder" if stray else "2c lost at a start")
        copy = self.copies.get((broker, key))
        if copy is not None:
            copy.excused, copy.rotten = True, 0

    def left(self, broker: int, key: Key) -> None:
        """The image takes a replica away. A later one on the same broker is another replica."""
        copy = self.copies.get((broker, key))
        if copy is not None:
            copy.left = True

    def _promises(self, replica: Replica) -> bool:
        """Whether its durable records must still be there: not after a power loss in `page-cache` mode."""
        return replica.fsync or replica.node.same_boot

    def _begin_mirror(self, replica: Replica, copy: Copy, before: Mirror | None) -> None:
        copy.mirror = self._mirror_of(replica, before or Mirror())
        self._extend(replica, copy, before)

    def _mirror_of(self, replica: Replica, before: Mirror) -> Mirror:
        return Mirror.begin(
            replica.log, lambda start, known: self._chain_before(replica.key, start, known), before
        )

    def _chain_before(self, key: Key, start: int, known: bool) -> int:
        """The chain of the batches below the start of a log.

        `known`: the first batch is there. Then it begins where a committed batch ends, or a batch that an
        unclean election lost.
        """
        if start == 0:
            return 0
        truth = self.truth(key)
        chain = truth.committed.chain_at(start)
        below = start < truth.committed.start_offset
        if chain is None and (below or truth.kept_from):
            given_up = [
                link
                for link in truth.batches.values()
                if link.next == start and (below or link.epoch < truth.kept_from)
            ]
            chain = max(given_up, key=lambda link: link.epoch).chain if given_up else None
        require(
            chain is not None or not known,
            "I5",
            f"partition {key[1]}: a log begins at {start}, and no committed batch ends there",
        )
        return 0 if chain is None else chain

    # --- while it runs

    def log_changed(self, replica: Replica) -> None:
        """A log may have changed: batches were appended, truncated, or all dropped."""
        copy, log = self.copy(replica), replica.log
        end, known = log.end_offset, copy.mirror.end
        if log.start_offset == end and (end != known or copy.mirror.links):
            # It may have dropped other batches than the leader's, and end at the same offset as before.
            self._restarted(replica)
        elif end < known:
            self._truncated(replica, known)
        elif end > known:
            self._extend(replica, copy)
        if log.durable_offset > copy.durable:
            self._synced(replica, copy.durable)
        copy.durable = max(copy.durable, log.durable_offset)

    def _synced(self, replica: Replica, before: int) -> None:
        """All that a running log calls durable is on the disk (2a)."""
        point, disk = replica.log.recovery_point, replica.node.disk
        for segment in reversed(replica.log.segments):
            if segment.base_offset > point.segment_base:
                continue
            last = segment.base_offset == point.segment_base
            size = point.position if last else segment.size
            require(
                not size or disk.synced_bytes(segment.path) >= size,
                "2a",
                f"{replica.name} on broker {replica.node.id} says that all below {point.offset} is durable; "
                f"{disk.synced_bytes(segment.path)} of {size} bytes of {segment.path} are on the disk",
            )
            if segment.base_offset <= before:
                return

    def _extend(self, replica: Replica, copy: Copy, before: Mirror | None = None) -> None:
        truth = self.truth(replica.key)
        for link in copy.mirror.extend(replica.log, before):
            known = truth.batches.setdefault((link.epoch, link.base), link)
            if known is link:
                truth.began[link.epoch, link.base] = replica.log.start_offset
                self.born(replica.key, link, found=before is not None)
            require(
                known == link,
                "I5",
                f"{replica.name} on broker {replica.node.id} has another batch than the first log with "
                f"offset {link.base} in epoch {link.epoch}, or other batches before it",
            )

    def _truncated(self, replica: Replica, before: int) -> None:
        copy, truth = self.copy(replica), self.truth(replica.key)
        end = replica.log.end_offset
        if end < before:
            self.mark("R1 truncated")
        if end < copy.high_watermark:
            require(
                truth.unclean > 0,
                "I14",
                f"{replica.name} on broker {replica.node.id} was truncated to {end}, below its high "
                f"watermark {copy.high_watermark}, without an unclean election",
            )
            self.mark("R1 unclean truncation")
        copy.high_watermark = min(copy.high_watermark, end)
        copy.mirror.cut(end)
        copy.durable = min(copy.durable, replica.log.durable_offset)
        self._history_ends(replica)
        self._forgotten(replica)
        self.members(replica.key)

    def _history_ends(self, replica: Replica) -> None:
        """No epoch in the history starts behind the log; an unclean one may start at its end (R1, R5)."""
        end = replica.log.end_offset
        for epoch, start, unclean in replica.log.epochs:
            require(
                start < end or (unclean and start == end),
                "R5",
                f"{replica.name} on broker {replica.node.id} ends at {end}, and has an epoch {epoch} that "
                f"starts at {start}",
            )

    def _forgotten(self, replica: Replica) -> None:
        """Truncated batches are neither in the tail cache nor in the append guard (R1)."""
        log = replica.log
        end, guard = log.end_offset, log.guarding.loaded
        where = f"{replica.name} on broker {replica.node.id} was truncated to {end}"
        require(not log.reader.is_cached(end), "R1", f"{where}, and its tail cache still has batches behind")
        if guard is None:
            return
        for producer, state in guard._producers.items():
            last = max((ref.base_offset for ref in state.window), default=-1)
            require(
                last < end,
                "R1",
                f"{where}, and its append guard still has a batch of producer {producer} at {last}",
            )
        last = max((known.offset for known in guard._ids_order), default=-1)
        require(last < end, "R1", f"{where}, and its append guard still has a message id at {last}")

    def _restarted(self, replica: Replica) -> None:
        self.mark("R1 started over")
        copy, end = self.copy(replica), replica.log.end_offset
        # It had no record, so it lost none.
        empty = not copy.mirror.links
        require(
            end >= copy.high_watermark or empty or self.truth(replica.key).unclean,
            "I14",
            f"{replica.name} on broker {replica.node.id} drops its log and starts over at {end}, below its "
            f"high watermark {copy.high_watermark}, without an unclean election",
        )
        copy.high_watermark = min(copy.high_watermark, end)
        if (empty or self.truth(replica.key).unclean) and not replica.leads:
            # The leader of an unclean election may never have had some of the deleted records.
            copy.start_offset = copy.start_saved = replica.log.start_offset
        if not replica.leads:
            # A leader's log is empty when it has deleted all records: `touched` checks that it may.
            copy.start_offset = max(copy.start_offset, replica.log.start_offset)
        copy.durable = replica.log.durable_offset
        copy.rotten = 0
        self._begin_mirror(replica, copy, None)
        self._history_begins(replica)
        self.members(replica.key)

    def _history_begins(self, replica: Replica) -> None:
        """An empty log has the epoch of the record below its start (R1)."""
        truth, start = self.truth(replica.key), replica.log.end_offset
        before = [link for link in truth.committed.between(0, start) if link.next >= start]
        if start != replica.log.start_offset or not before or truth.kept_from:
            return
        known = replica.log.epochs.epoch_at(start - 1)
        placed = self.image.partition(*replica.key)
        leader = None if placed is None or placed.leader is None else self.brokers[placed.leader]
        teacher = None if leader is None else leader.replicas.get(replica.key)
        if known is None and teacher is not None and teacher.log.epochs.epoch_at(start - 1) is None:
            # Its leader was quarantined once and created again at the saved start: it does not have the
            # epoch.
            return
        require(
            known == before[-1].epoch,
            "R1",
            f"{replica.name} on broker {replica.node.id} is empty and begins at {start}; the record below is "
            f"of epoch {before[-1].epoch}, and the log has epoch {known} there",
        )

    def crashed(self, broker: Node) -> None:
        """A broker's process ended: notes what it had on disk at that moment."""
        for replica in broker.replicas.values():
            copy = self.copy(replica)
            copy.durable = replica.log.durable_offset
            copy.high_watermark = 0
            if copy.durable > copy.mirror.end:
                # Its disk died in the middle of the last event, and the watch has not looked since.
                dead, broker.disk.dead = broker.disk.dead, False
                log = replica.log
                if log.start_offset == log.end_offset or log.start_offset > copy.mirror.end:
                    # The log had just started over.
                    self._begin_mirror(replica, copy, None)
                else:
                    self._extend(replica, copy)
                broker.disk.dead = dead

    # --- damage and quarantine

    def disk_lost(self, broker: Node) -> None:
        for (owner, _), copy in self.copies.items():
            if owner == broker.id:
                copy.excused, copy.rotten = True, 0
        self.strays_lost(broker)

    def rotted(self, replica: Replica, end: int) -> None:
        self.mark("2c rot")
        self.copy(replica).rotten = end

    def damage_changed(self, replica: Replica, before: int, now: int) -> None:
        """A broker found damage, or repaired it."""
        if now > before:
            self.mark("2c damage found")
        elif not now:
            self.mark("2c healed")
            self.copy(replica).rotten = 0

    def halted(self, replica: Replica, reason: str) -> None:
        """An unexpected exception stopped a replica (R6)."""
        require(False, "I19", f"{replica.name} failed on broker {replica.node.id}: {reason}")

    def quarantined(self, replica: Replica) -> None:
        self.mark("2c quarantine")
        copy = self.copy(replica)
        copy.excused, copy.rotten = True, 0

    def removed(self, replica: Replica) -> None:
        self.copies.pop((replica.node.id, replica.key), None)

    def given(self, name: str, broker: int, key: Key, data: bytes) -> None:
        """A broker sends batches to a reader or a follower: their checksums must be right (I15)."""
        at = 0
        for header in headers_of(data):
            try:
                verify_batch(pa.py_buffer(data[at : at + header.length]), header, *key)
            except TidelogError as error:
                require(False, "I15", f"{name}: broker {broker} sends a damaged batch: {error}")
            at += header.length

    def compare(self, replica: Replica) -> None:
        """Reads a log again, and compares it with its mirror."""
        copy = self.copy(replica)
        try:
            fresh = self._mirror_of(replica, copy.mirror)
            fresh.extend(replica.log, copy.mirror)
        except CrashPoint:
            # A log writes down the damage that a read finds, and this write was the disk's crash point.
            return
        require(
            fresh.links == copy.mirror.between(fresh.start_offset, copy.mirror.end),
            "I5",
            f"{replica.name} on broker {replica.node.id} has other batches than were written to it",
        )
        for link in fresh.links:
            require(
                replica.log.epochs.knows(link.epoch, link.base),
                "R5",
                f"{replica.name} on broker {replica.node.id} has a batch of epoch {link.epoch} at "
                f"{link.base}; its epoch history is {list(replica.log.epochs)}",
            )
