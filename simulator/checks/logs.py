"""Checks of what replicas hold: appended, replicated, cut, recovered, set aside (I5, I9, I14, I15)."""

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
    """See the module."""

    # --- at a start

    def came(self, replica: Replica) -> None:
        """A broker serves a replica: one that it found at its start, or a new one."""
        known = self.copies.get((replica.node.id, replica.key))
        if known is not None and known.left:
            # Whatever it had, the image took it away: this is another one.
            del self.copies[replica.node.id, replica.key]
        self.found_again(replica)
        self._opened(replica)
        self.members(replica.key)

    def _opened(self, replica: Replica) -> None:
        """What it calls durable is on the disk (2a)."""
        disk = replica.node.disk
        for segment in replica.log.segments:
            require(
                not segment.size or disk.is_synced(segment.path),
                "2a",
                f"{replica.name} on {replica.node.id} says that {replica.log.durable_offset} is durable; "
                f"{segment.path} was not synced since it was written",
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
                f"{replica.name} on {replica.node.id} began at {known.start_saved} and begins at "
                f"{replica.log.start_offset} after its recovery",
            )
            copy.start_saved = known.start_saved
            copy.rotten = known.rotten
        if known is not None and not known.excused and not suspect:
            require(
                replica.log.end_offset >= known.durable
                and (
                    # Of a `page-cache` stream the log may begin behind what was flushed.
                    known.durable < copy.mirror.start_offset
                    or copy.mirror.chain_at(known.durable) == known.mirror.chain_at(known.durable)
                ),
                "2a",
                f"{replica.name} on {replica.node.id} had {known.durable} on disk and has "
                f"{replica.log.end_offset} after its recovery",
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
            f"broker {broker} lost partition {key[1]} on a good disk: {reason}",
        )
        self.mark("2d another's folder" if stray else "2c lost at a start")
        copy = self.copies.get((broker, key))
        if copy is not None:
            copy.excused, copy.rotten = True, 0

    def left(self, broker: int, key: Key) -> None:
        """The image takes a replica away: if there is one again, it is another."""
        copy = self.copies.get((broker, key))
        if copy is not None:
            copy.left = True

    def _promises(self, replica: Replica) -> bool:
        """Whether what it held durably must still be there: not after a power loss in `page-cache` mode."""
        return replica.fsync or replica.node.same_boot

    def _begin_mirror(self, replica: Replica, copy: Copy, before: Mirror | None) -> None:
        copy.mirror = self._mirror_of(replica, before or Mirror())
        self._extend(replica, copy, before)

    def _mirror_of(self, replica: Replica, before: Mirror) -> Mirror:
        return Mirror.begin(
            replica.log, lambda start, known: self._chain_before(replica.key, start, known), before
        )

    def _chain_before(self, key: Key, start: int, known: bool) -> int:
        """`known`: its first batch is there, and begins where a committed one ends, or one that an unclean
        election gave up."""
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
            chain is not None or not known, "I5", f"a log begins at {start}, where no committed batch ends"
        )
        return 0 if chain is None else chain

    # --- while it runs

    def log_changed(self, replica: Replica) -> None:
        """Perhaps it did: something was appended, cut off, or dropped altogether."""
        copy, log = self.copy(replica), replica.log
        end, known = log.end_offset, copy.mirror.end
        if log.start_offset == end and (end != known or copy.mirror.links):
            # It may have dropped other batches than the leader's and end where it did.
            self._restarted(replica)
        elif end < known:
            self._truncated(replica, known)
        elif end > known:
            self._extend(replica, copy)
        if log.durable_offset > copy.durable:
            self._synced(replica, copy.durable)
        copy.durable = max(copy.durable, log.durable_offset)

    def _synced(self, replica: Replica, before: int) -> None:
        """What it calls durable is on the disk, also while it runs (2a)."""
        point, disk = replica.log.recovery_point, replica.node.disk
        for segment in reversed(replica.log.segments):
            if segment.base_offset > point.segment_base:
                continue
            last = segment.base_offset == point.segment_base
            size = point.position if last else segment.size
            require(
                not size or disk.synced_bytes(segment.path) >= size,
                "2a",
                f"{replica.name} on {replica.node.id} calls {point.offset} durable; of {segment.path} "
                f"{disk.synced_bytes(segment.path)} of {size} bytes are on the disk",
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
                f"{replica.name} on {replica.node.id} has another batch, or another log before it, at "
                f"{link.base} in epoch {link.epoch}",
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
                f"{replica.name} on {replica.node.id} truncated to {end}, below its high watermark "
                f"{copy.high_watermark}",
            )
            self.mark("R1 unclean truncation")
        copy.high_watermark = min(copy.high_watermark, end)
        copy.mirror.cut(end)
        copy.durable = min(copy.durable, replica.log.durable_offset)
        self._history_ends(replica)
        self._forgotten(replica)
        self.members(replica.key)

    def _history_ends(self, replica: Replica) -> None:
        """The history of epochs goes no further than the log, but for an unclean one at its end (R1, R5)."""
        end = replica.log.end_offset
        for epoch, start, unclean in replica.log.epochs:
            require(
                start < end or (unclean and start == end),
                "R5",
                f"{replica.name} on {replica.node.id} ends at {end}; epoch {epoch} began at {start}",
            )

    def _forgotten(self, replica: Replica) -> None:
        """What was cut off is neither in the cache nor in the append guard (R1)."""
        log = replica.log
        end, guard = log.end_offset, log.guarding.loaded
        where = f"{replica.name} on {replica.node.id} was cut at {end}"
        require(not log.reader.is_cached(end), "R1", f"{where}, and is in memory beyond")
        if guard is None:
            return
        for producer, state in guard._producers.items():
            last = max((ref.base_offset for ref in state.window), default=-1)
            require(last < end, "R1", f"{where}, and knows of a batch of producer {producer} at {last}")
        last = max((known.offset for known in guard._ids_order), default=-1)
        require(last < end, "R1", f"{where}, and knows of a message id at {last}")

    def _restarted(self, replica: Replica) -> None:
        self.mark("R1 started over")
        copy, end = self.copy(replica), replica.log.end_offset
        # It held no record, so it lost none.
        empty = not copy.mirror.links
        require(
            end >= copy.high_watermark or empty or self.truth(replica.key).unclean,
            "I14",
            f"{replica.name} on {replica.node.id} starts over at {end}, below its high watermark "
            f"{copy.high_watermark}",
        )
        copy.high_watermark = min(copy.high_watermark, end)
        if (empty or self.truth(replica.key).unclean) and not replica.leads:
            # What was deleted may be more than what an unclean leader ever had.
            copy.start_offset = copy.start_saved = replica.log.start_offset
        if not replica.leads:
            # A leader's log is empty when it has deleted everything: `touched` asks whether it may.
            copy.start_offset = max(copy.start_offset, replica.log.start_offset)
        copy.durable = replica.log.durable_offset
        copy.rotten = 0
        self._begin_mirror(replica, copy, None)
        self._history_begins(replica)
        self.members(replica.key)

    def _history_begins(self, replica: Replica) -> None:
        """An empty log knows of which epoch the record below its start was (R1)."""
        truth, start = self.truth(replica.key), replica.log.end_offset
        before = [link for link in truth.committed.between(0, start) if link.next >= start]
        if start != replica.log.start_offset or not before or truth.kept_from:
            return
        known = replica.log.epochs.epoch_at(start - 1)
        placed = self.image.partition(*replica.key)
        leader = None if placed is None or placed.leader is None else self.brokers[placed.leader]
        teacher = None if leader is None else leader.replicas.get(replica.key)
        if known is None and teacher is not None and teacher.log.epochs.epoch_at(start - 1) is None:
            # Its leader was set aside once, and made again at the start that was saved: it does not know.
            return
        require(
            known == before[-1].epoch,
            "R1",
            f"{replica.name} on {replica.node.id} is empty and begins at {start}; the record below is of "
            f"epoch {before[-1].epoch}, and it knows of {known}",
        )

    def crashed(self, broker: Node) -> None:
        """What it had on disk by then, whoever was told of it."""
        for replica in broker.replicas.values():
            copy = self.copy(replica)
            copy.durable = replica.log.durable_offset
            copy.high_watermark = 0
            if copy.durable > copy.mirror.end:
                # Its disk died in the middle of what happened last, which nobody has looked at.
                dead, broker.disk.dead = broker.disk.dead, False
                log = replica.log
                if log.start_offset == log.end_offset or log.start_offset > copy.mirror.end:
                    # It had just begun again.
                    self._begin_mirror(replica, copy, None)
                else:
                    self._extend(replica, copy)
                broker.disk.dead = dead

    # --- damage, and what is set aside

    def disk_lost(self, broker: Node) -> None:
        for (owner, _), copy in self.copies.items():
            if owner == broker.id:
                copy.excused, copy.rotten = True, 0
        self.strays_lost(broker)

    def rotted(self, replica: Replica, end: int) -> None:
        self.mark("2c rot")
        self.copy(replica).rotten = end

    def damage_changed(self, replica: Replica, before: int, now: int) -> None:
        """A broker found rot, or healed what it had found."""
        if now > before:
            self.mark("2c damage found")
        elif not now:
            self.mark("2c healed")
            self.copy(replica).rotten = 0

    def halted(self, replica: Replica, reason: str) -> None:
        """An exception that nobody foresaw came out of it (R6)."""
        require(False, "I19", f"{replica.name} failed on broker {replica.node.id}: {reason}")

    def quarantined(self, replica: Replica) -> None:
        self.mark("2c quarantine")
        copy = self.copy(replica)
        copy.excused, copy.rotten = True, 0

    def removed(self, replica: Replica) -> None:
        self.copies.pop((replica.node.id, replica.key), None)

    def given(self, name: str, broker: int, key: Key, data: bytes) -> None:
        """Somebody is given batches, a reader or a follower: their checksums hold (I15)."""
        at = 0
        for header in headers_of(data):
            try:
                verify_batch(pa.py_buffer(data[at : at + header.length]), header, *key)
            except TidelogError as error:
                require(False, "I15", f"{name}: broker {broker} gives away rot: {error}")
            at += header.length

    def compare(self, replica: Replica) -> None:
        """A log, read again, against what is believed of it."""
        copy = self.copy(replica)
        try:
            fresh = self._mirror_of(replica, copy.mirror)
            fresh.extend(replica.log, copy.mirror)
        except CrashPoint:
            # A log notes the damage that a read meets, and the disk was to die at its next write.
            return
        require(
            fresh.links == copy.mirror.between(fresh.start_offset, copy.mirror.end),
            "I5",
            f"{replica.name} on {replica.node.id} holds something else than was written to it",
        )
        for link in fresh.links:
            require(
                replica.log.epochs.knows(link.epoch, link.base),
                "R5",
                f"{replica.name} on {replica.node.id} holds a batch of epoch {link.epoch} at {link.base}; "
                f"its history says {list(replica.log.epochs)}",
            )
