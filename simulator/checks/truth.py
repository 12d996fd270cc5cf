"""What is true in a run: which records are committed, which brokers led, what the log of each replica has.

No broker of the run knows this. The other modules compare the brokers with it, one subject each. A check that
fails raises `Violated` with the number of the invariant (docs/replication.md) and a sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from simulator.node import Key, Node, Replica
from simulator.watch.mirror import Link, Mirror
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, StreamImage


class Violated(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, sentence: str) -> None:
        super().__init__(f"{invariant}: {sentence}")
        self.invariant = invariant


def require(condition: object, invariant: str, sentence: str) -> None:
    if not condition:
        raise Violated(invariant, sentence)


class Led(NamedTuple):
    """The leader of a leader epoch: a run of a broker."""

    broker: int
    run: int

    def __str__(self) -> str:
        return f"broker {self.broker} in run {self.run}"


class Truth:
    """What is true of one partition."""

    def __init__(self) -> None:
        self.leaders: dict[int, Led] = {}
        """By leader epoch."""
        self.led_until: dict[int, int] = {}
        """By broker: when the newest image named another leader in its place. µs."""
        self.batches: dict[tuple[int, int], Link] = {}
        """By leader epoch and base offset: the first batch that was seen there."""
        self.began: dict[tuple[int, int], int] = {}
        """By the same: the log start offset of the log to which the batch was written."""
        self.committed = Mirror()
        """The committed batches."""
        self.committed_in: dict[int, int] = {}
        """By leader epoch: the end of the committed records."""
        self.acknowledged = 0
        """The next offset after the last record that a producer was told is committed."""
        self.deleted_in: dict[int, int] = {}
        """By leader epoch: a client was told that all records below are deleted."""
        self.conditional: dict[tuple[int, int], tuple[int, int]] = {}
        """By producer id and first sequence: leader epoch and offset of a conditional append (R9)."""
        self.unclean = 0
        """The newest leader epoch of an unclean election: records committed in earlier epochs may be lost."""
        self.unclean_begins = 0
        """That epoch, until its leader or a later one shows which records are left; 0: a leader has."""
        self.forgotten = 0
        """A forced recovery of the metadata forgot changes of this partition (M2a): records committed in an
        earlier leader epoch than this may be lost. 0: none did."""
        self.returning = False
        """Since that recovery no leader has committed records of its epoch."""
        self._before: Mirror | None = None
        """The records that were committed before the recovery, if a broker has led since."""
        self.switched = False
        """The stream was both `fsync` and `page-cache` in this run (R17)."""
        self.flushed = 0
        """The end of the records that leaders committed since the stream is `fsync` (`flushed_end`)."""

    @property
    def flushed_end(self) -> int:
        """All committed records below are on the disks, if the stream is `fsync` (R17)."""
        return min(self.flushed, self.committed.end) if self.switched else self.committed.end

    @property
    def kept_from(self) -> int:
        """Records that were committed in an earlier leader epoch than this may be lost (R6, M2a)."""
        return max(self.unclean, self.forgotten)

    def given_up(self, mirror: Mirror) -> None:
        """A broker leads after an unclean election: only the records in its log are left (R6)."""
        self.unclean_begins = 0
        self.committed.cut(mirror.end)
        if self.committed.chain_at(self.committed.end) != mirror.chain_at(self.committed.end):
            # Its log differs from the committed records.
            self.committed = Mirror(mirror.start_offset, mirror.start_chain)

    def forget(self, leader_epoch: int) -> None:
        """A forced recovery forgot changes; leaders from this epoch on do not have them (M2a)."""
        if not self.returning:
            self._before = None
        self.forgotten, self.returning = leader_epoch, True

    def returned(self, mirror: Mirror) -> None:
        """A broker leads after the forced recovery, with this log. Until a leader commits records, the next
        leader may have more of the records that were committed before."""
        if self._before is None:
            self._before = self.committed
        self.committed = self._before.copy()
        self.given_up(mirror)

    def committed_before(self, leader_epoch: int) -> int:
        """The end of the records that leaders of earlier epochs committed; the leader of this epoch has them
        all.

        A leader may learn of its leadership late, when later leaders have committed more.
        """
        ends = (end for epoch, end in self.committed_in.items() if epoch < leader_epoch)
        return min(max(ends, default=0), self.committed.end)

    def deleted_before(self, leader_epoch: int) -> int:
        """Leaders of earlier epochs told clients that all records below are deleted (R11)."""
        return max((start for epoch, start in self.deleted_in.items() if epoch < leader_epoch), default=0)


class Copy:
    """What is true of one replica."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.durable = 0
        """All records below are on the disk, as the broker knew at the last look."""
        self.high_watermark = 0
        self.start_offset = 0
        self.start_saved = 0
        """The log start offset that the follower told its leader."""
        self.excused = False
        """Its disk is lost, or it is quarantined or suspect: it need not have any record."""
        self.led_from = 0
        """Its high watermark when it began to lead."""
        self.fsync = False
        """It counted only flushed records, at the last look."""
        self.spare = 0
        """How many members of the ISR stay beyond the minimum, as its leader knew at the last look."""
        self.left = False
        """The image has taken the replica away."""
        self.rotten = 0
        """A bit of a batch that ends here was flipped and is not repaired yet (2c); 0: none."""


class Surroundings(Protocol):
    """The run around the checks. They ask it for time and disturbances, and tell it what they heard."""

    def now_us(self) -> int:
        """Since the run began."""
        ...

    def is_undisturbed(self, broker: int) -> bool:
        """Whether a broker has been up and reachable for all others for long."""
        ...

    def is_whole(self) -> bool:
        """Whether the network has no cut."""
        ...

    def alarm(self) -> None:
        """A violation is kept: the run looks at it after this event."""
        ...

    def votes_are_asked(self, broker: int) -> None:
        """A broker asks for votes."""
        ...

    def vote_is_given(self, broker: int) -> None:
        """A broker gives its vote to another broker."""
        ...

    def removal_is_proposed(self, leader: int) -> None:
        """A leader proposes to take a follower out of its ISR."""
        ...


@dataclass(frozen=True)
class Setup:
    """What the checks know of a run before it begins."""

    surroundings: Surroundings
    brokers: dict[int, Node]
    """By id; filled while the run is put together."""
    disks_are_lost: bool
    """Disks are lost, put back, or rot in this run."""
    leaders_are_moved: bool
    """Administrators move leaderships in this run."""
    skew_us_max: int
    """How far clocks that are right may be off."""


class Knowledge(ABC):
    """The common state of all checks."""

    def __init__(self, setup: Setup) -> None:
        self.surroundings = setup.surroundings
        self.brokers = setup.brokers
        self.disks_are_lost = setup.disks_are_lost
        self.leaders_are_moved = setup.leaders_are_moved
        self.skew_us_max = setup.skew_us_max
        self.marks: Counter[str] = Counter()
        """How often each rule was exercised."""
        self.truths: dict[Key, Truth] = {}
        self.copies: dict[tuple[int, Key], Copy] = {}
        self.image = ClusterImage()
        """The newest image that a broker has applied."""
        self.violated: Violated | None = None
        """The first violation that was found inside the code of a broker, which would handle the
        exception."""
        self.controllers: dict[int, None] = {}
        """All brokers that have led the quorum in this run."""

    def now_us(self) -> int:
        return self.surroundings.now_us()

    def truth(self, key: Key) -> Truth:
        return self.truths.setdefault(key, Truth())

    def copy(self, replica: Replica) -> Copy:
        return self.copies.setdefault((replica.node.id, replica.key), Copy())

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps a violation in this block for the run, which looks for it after each event."""
        try:
            yield
        except Violated as violated:
            self.keep(violated)

    def keep(self, violated: Violated) -> None:
        """Keeps a violation for the run. The first one counts."""
        self.violated = self.violated or violated
        self.surroundings.alarm()

    def mark(self, rule: str) -> None:
        self.marks[rule] += 1

    @abstractmethod
    def left(self, broker: int, key: Key) -> None:
        """The image takes a replica away. `logs` implements this."""

    @abstractmethod
    def registered(self, known: BrokerImage) -> None:
        """The image has a new run of a broker. `volumes` implements this."""

    @abstractmethod
    def fenced(self, image: ClusterImage) -> None:
        """The brokers of the image changed. `retention` implements this."""

    @abstractmethod
    def stream_set(self, stream: StreamImage) -> None:
        """A new image has a changed stream. `commits` implements this."""

    @abstractmethod
    def members(self, key: Key) -> None:
        """Checks I6 after a change that may break it. `commits` implements this."""
