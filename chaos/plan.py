"""The seeded schedule of faults, as values. No I/O; `faults` performs them.

Each round contains every kind once, in a random order, so that a short run has all of them. Some faults have
a second one at the same time. The schedule has no faults that the promise does not cover: a disk is lost,
rots or is put back from a copy only while every replica is in sync, and alone (docs/replication.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """The kinds of faults."""

    KILL = "kill"
    """A broker's process is killed (SIGKILL), and started again."""
    STOP = "stop"
    """A broker is stopped in good order (SIGTERM), and started again."""
    FREEZE = "freeze"
    """A broker's process is stopped and continued (SIGSTOP, SIGCONT)."""
    ISOLATE = "isolate"
    """A broker is cut off from all others."""
    MUTE = "mute"
    """A broker's messages do not reach the others; their messages reach it."""
    DEAFEN = "deafen"
    """The others' messages do not reach a broker; its messages reach them."""
    CUT = "cut"
    """Two brokers are cut off from each other, and neither from the third."""
    RESET = "reset"
    """Every connection between brokers breaks, again and again."""
    SLOW_DISK = "slow-disk"
    """Each flush of a broker takes longer."""
    FULL_DISK = "full-disk"
    """A broker's disk has no room for records."""
    LOST_DISK = "lost-disk"
    """A broker is killed and its data directory deleted; it comes back empty."""
    OLD_VOLUME = "old-volume"
    """A broker's data directory is put back from a copy. The broker must refuse it, and then starts empty."""
    ROT = "rot"
    """One bit of any file of a data directory is flipped while its broker is down."""
    CLOCK = "clock"
    """A broker's clock jumps by days, ahead or back, and is corrected later."""
    REASSIGN = "reassign"
    """Replicas of a stream leave a broker and come back, perhaps before they have left."""
    DURABILITY = "durability"
    """A stream changes between `fsync` and `page-cache`, and back."""
    KILL_ALL = "kill-all"
    """All brokers are killed at once, and started again."""
    ROLL = "roll"
    """All brokers are stopped and started, one after the other, as in a rolling update."""


DISKS: Final = frozenset({Kind.LOST_DISK, Kind.OLD_VOLUME, Kind.ROT})
"""A broker may lose all its data."""

ALONE: Final = DISKS | {Kind.KILL_ALL, Kind.ROLL}
"""No other fault happens at the same time."""

HEALED_FIRST: Final = DISKS | {Kind.ROLL}
"""They begin only when every replica is in sync."""

SECOND_FAULT_CHANCE: Final = 0.25
HEALED_CHANCE: Final = 0.3
"""How often a fault waits until every replica is in sync again."""

SECONDS: Final = (1.0, 8.0)
"""How long a fault lasts."""

PAUSE_SECONDS: Final = (0.5, 4.0)
"""Between the end of a fault and the next one."""

FLUSH_SECONDS: Final = (0.05, 0.5)

JUMP_DAYS: Final = (-30, -1, 1, 30)
"""By how much a clock jumps."""


class Fault(NamedTuple):
    kind: Kind
    broker: int
    """The broker that has the fault; of a pair, the first."""
    other: int
    """Another broker, for kinds that need one."""
    seconds: float
    flush_seconds: float = 0.0
    """How much longer a slow disk's flushes take."""
    days: int = 0
    """How far a clock jumps."""

    def __str__(self) -> str:
        lasts = f"for {self.seconds:.1f} s"
        match self.kind:
            case Kind.KILL_ALL | Kind.ROLL | Kind.RESET | Kind.DURABILITY:
                return f"{self.kind}, {lasts}"
            case Kind.CUT:
                return f"{self.kind} brokers {self.broker} and {self.other}, {lasts}"
            case Kind.SLOW_DISK:
                return f"{self.kind} of broker {self.broker} (flushes {self.flush_seconds:.2f} s), {lasts}"
            case Kind.CLOCK:
                return f"{self.kind} of broker {self.broker} ({self.days:+} days), {lasts}"
            case _:
                return f"{self.kind} of broker {self.broker}, {lasts}"


class Step(NamedTuple):
    """Faults that begin together."""

    faults: tuple[Fault, ...]
    healed_first: bool
    """The faults begin only when every replica is in sync."""
    pause_seconds: float
    """How long the run waits after the last of them has ended."""


def schedule(rng: random.Random, brokers: Sequence[int], kinds: Sequence[Kind]) -> Iterator[Step]:
    """Yields steps without end."""
    while True:
        deck = list(kinds)
        rng.shuffle(deck)
        while deck:
            kind = deck.pop()
            broker, other = rng.sample(list(brokers), 2)
            faults = [_fault(rng, kind, broker, other)]
            beside = [one for one in kinds if one not in ALONE]
            if kind not in ALONE and beside and rng.random() < SECOND_FAULT_CHANCE:
                # On the other broker, so that no frozen process is killed.
                faults.append(_fault(rng, rng.choice(beside), other, broker))
            healed = kind in HEALED_FIRST or rng.random() < HEALED_CHANCE
            yield Step(tuple(faults), healed, rng.uniform(*PAUSE_SECONDS))


def _fault(rng: random.Random, kind: Kind, broker: int, other: int) -> Fault:
    seconds, flush_seconds = rng.uniform(*SECONDS), rng.uniform(*FLUSH_SECONDS)
    return Fault(kind, broker, other, seconds, flush_seconds, rng.choice(JUMP_DAYS))
