"""What is true of a run, known by nobody in it: what was committed, who led, what each replica holds.

The checks beside it compare the brokers with this, one subject each. A check that fails raises `Violated`
with the invariant's number (docs/replication.md) and a sentence.
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
    """Who led in a leader epoch."""

    broker: int
    run: int


class Truth:
    """What is known of one partition, by nobody in particular."""

    def __init__(self) -> None:
        self.leaders: dict[int, Led] = {}
        """By leader epoch."""
        self.led_until: dict[int, int] = {}
        """By broker: when the newest image named another leader in its place. µs."""
        self.batches: dict[tuple[int, int], Link] = {}
        """By leader epoch and base offset: what was first seen there."""
        self.began: dict[tuple[int, int], int] = {}
        """By the same: where the log began that it was written to."""
        self.committed = Mirror()
        self.committed_in: dict[int, int] = {}
        """By leader epoch: up to where it was committed."""
        self.acknowledged = 0
        """Behind the last record of which a producer was told that it is committed."""
        self.deleted_in: dict[int, int] = {}
        """By leader epoch: somebody was told that everything below is deleted."""
        self.conditional: dict[tuple[int, int], tuple[int, int]] = {}
        """By producer id and first sequence: leader epoch and offset of what met its offset (R9)."""
        self.unclean = 0
        """The newest unclean epoch in which somebody led: what was committed before may be gone."""
        self.unclean_begins = 0
        """That epoch, until its leader, or a later one, shows what is left; 0: it was shown."""
        self.forgotten = 0
        """The metadata went on by force and forgot changes of this partition (M2a): what was committed in an
        earlier leader epoch than this may be gone. 0: it did not."""
        self.returning = False
        """Since then no ISR has had all that its leader has."""
        self._before: Mirror | None = None
        """What was committed before that, if somebody has led since."""
        self.switched = False
        """The stream was both `fsync` and `page-cache` in this run (R17)."""
        self.flushed = 0
        """Up to where a leader committed on an `fsync` stream since that is one; see `flushed_end`."""

    @property
    def flushed_end(self) -> int:
        """Everything committed below is on the disks, if the stream is `fsync` (R17)."""
        return min(self.flushed, self.committed.end) if self.switched else self.committed.end

    @property
    def kept_from(self) -> int:
        """What was committed in an earlier leader epoch may be gone (R6, M2a)."""
        return max(self.unclean, self.forgotten)

    def given_up(self, mirror: Mirror) -> None:
        """Somebody leads after an unclean election: what that log holds is all there is (R6)."""
        self.unclean_begins = 0
        self.committed.cut(mirror.end)
        if self.committed.chain_at(self.committed.end) != mirror.chain_at(self.committed.end):
            # It parts from what was committed before.
            self.committed = Mirror(mirror.start_offset, mirror.start_chain)

    def forget(self, leader_epoch: int) -> None:
        """The metadata goes on by force, and leaders from this epoch on know no better (M2a)."""
        if not self.returning:
            self._before = None
        self.forgotten, self.returning = leader_epoch, True

    def returned(self, mirror: Mirror) -> None:
        """Somebody leads after that, with what this log holds. As long as none has committed anything, the
        next one may have more of what was committed before."""
        if self._before is None:
            self._before = self.committed
        self.committed = self._before.copy()
        self.given_up(mirror)

    def committed_before(self, leader_epoch: int) -> int:
        """Up to where the leaders of earlier epochs had committed; who leads in it has all of that. It may
        hear of its leadership late, when others have led and committed after it."""
        ends = (end for epoch, end in self.committed_in.items() if epoch < leader_epoch)
        return min(max(ends, default=0), self.committed.end)

    def deleted_before(self, leader_epoch: int) -> int:
        """Below it the leaders of earlier epochs had deleted everything, and had said so (R11)."""
        return max((start for epoch, start in self.deleted_in.items() if epoch < leader_epoch), default=0)


class Copy:
    """What is known of one replica, from outside."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.durable = 0
        """Everything below is on the disk, as the broker knew."""
        self.high_watermark = 0
        self.start_offset = 0
        self.start_saved = 0
        """The log start offset that somebody was told of."""
        self.excused = False
        """Its disk is gone, or it is set aside, or known to be suspect: nothing is expected of it."""
        self.led_from = 0
        """The high watermark with which it began to lead."""
        self.fsync = False
        """It counted only what was flushed, when it was looked at last."""
        self.spare = 0
        """How many more members of the ISR stay than the minimum, as its leader knew."""
        self.left = False
        """The image has taken it away since."""
        self.rotten = 0
        """A bit of a segment that ends here was turned over and is not mended yet (2c); 0: none."""


class Surroundings(Protocol):
    """The run around the checks. They ask it for time and disturbances, and tell it what they heard."""

    def now_us(self) -> int:
        """Since the run began."""
        ...

    def is_undisturbed(self, broker: int) -> bool:
        """Whether a broker runs, and has for long, and every other one hears it."""
        ...

    def is_whole(self) -> bool:
        """Whether the network has no cut."""
        ...

    def alarm(self) -> None:
        """A violation is kept: the run looks at it after this step."""
        ...

    def votes_are_asked(self, broker: int) -> None:
        """A broker asks for votes."""
        ...

    def vote_is_given(self, broker: int) -> None:
        """A broker gives another one its vote."""
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
    """People change leaders in this run."""
    skew_us_max: int
    """How far clocks that are right may be off."""


class Knowledge(ABC):
    """What all checks share."""

    def __init__(self, setup: Setup) -> None:
        self.surroundings = setup.surroundings
        self.brokers = setup.brokers
        self.disks_are_lost = setup.disks_are_lost
        self.leaders_are_moved = setup.leaders_are_moved
        self.skew_us_max = setup.skew_us_max
        self.marks: Counter[str] = Counter()
        """Which rule was exercised how often."""
        self.truths: dict[Key, Truth] = {}
        self.copies: dict[tuple[int, Key], Copy] = {}
        self.image = ClusterImage()
        """The newest that anybody applied."""
        self.violated: Violated | None = None
        """The first that was found in the middle of what a broker did, which takes exceptions for its own."""
        self.controllers: dict[int, None] = {}
        """Brokers that have led the quorum."""

    def now_us(self) -> int:
        return self.surroundings.now_us()

    def truth(self, key: Key) -> Truth:
        return self.truths.setdefault(key, Truth())

    def copy(self, replica: Replica) -> Copy:
        return self.copies.setdefault((replica.node.id, replica.key), Copy())

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A violation in this block is kept for the run, which looks for it after each step."""
        try:
            yield
        except Violated as violated:
            self.keep(violated)

    def keep(self, violated: Violated) -> None:
        """Notes a violation for the run; the first one counts."""
        self.violated = self.violated or violated
        self.surroundings.alarm()

    def mark(self, rule: str) -> None:
        self.marks[rule] += 1

    @abstractmethod
    def left(self, broker: int, key: Key) -> None:
        """A replica was taken away, as `logs` notes."""

    @abstractmethod
    def registered(self, known: BrokerImage) -> None:
        """The image shows another run of a broker, as `volumes` notes."""

    @abstractmethod
    def fenced(self, image: ClusterImage) -> None:
        """The brokers of the image are others, or in another state, as `retention` notes."""

    @abstractmethod
    def stream_set(self, stream: StreamImage) -> None:
        """A new image has a stream that is not as it was, as `commits` and `retention` note."""

    @abstractmethod
    def members(self, key: Key) -> None:
        """I6, which `commits` checks; others have it checked after what may break it."""
