"""When a simulated broker makes its logs durable: group commit, flushes in the background, checkpoints.

A flush takes time; what is written while one runs is in the next. Half of them begin with the syncing and
half end with it, so that a crash in between meets both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from simulator.world import MS
from tidelog_broker.storage.reserve import Reserve

if TYPE_CHECKING:
    from simulator.broker import Broker
    from simulator.replica import Replica

CHECKPOINT_US: Final = 1000 * MS
BACKGROUND_US: Final = (200 * MS, 3000 * MS)
"""How long a `page-cache` stream waits for its flush; in a broker it is longer."""


class Flushing:
    """See the module. Of one run."""

    def __init__(self, broker: Broker, reserve: Reserve) -> None:
        self._broker = broker
        self._reserve = reserve
        self._dirty: dict[Replica, None] = {}
        self._written: dict[Replica, None] = {}
        """`page-cache` streams with something that is not flushed."""
        self._flushing = False

    def wrote(self, replica: Replica) -> None:
        """An `fsync` stream is flushed at once, a `page-cache` stream by and by."""
        if replica.fsync:
            self.flush(replica)
        elif replica not in self._written:
            self._written[replica] = None
            broker = self._broker
            broker.after(broker.rng.randint(*BACKGROUND_US), lambda: self._flush_written(replica))

    def _flush_written(self, replica: Replica) -> None:
        self._written.pop(replica, None)
        if not replica.removed:
            self.flush(replica)

    def flush(self, replica: Replica) -> None:
        """Group commit: everything that is written while one round runs is flushed by the next."""
        self._dirty[replica] = None
        if not self._flushing:
            self._begin()

    def _begin(self) -> None:
        self._flushing = True
        broker = self._broker
        replicas, self._dirty = list(self._dirty), {}
        early = broker.rng.random() < 0.5
        if early:
            self._sync(replicas)

        def ended() -> None:
            if not early:
                self._sync(replicas)
            self._flushing = False
            for replica in replicas:
                if not replica.removed:
                    broker.checks.flushed(replica)
                    replica.flushed()
            if self._dirty and not self._flushing:
                self._begin()

        broker.after(broker.write_delay(), ended)

    def _sync(self, replicas: list[Replica]) -> None:
        store = self._broker.hosted.store
        logs = [replica.log for replica in replicas if not replica.removed]
        store.sync(logs, whole=store.volume is not None)

    def checkpoint(self) -> None:
        """Now and then, of all replicas; a full disk puts it off."""
        self._reserve.restore()
        self.save(self._broker.replicas.values())
        for replica in list(self._broker.replicas.values()):
            replica.let_go()

    def close_clean(self) -> None:
        """Everything is on disk, and a mark says so."""
        replicas = self._broker.replicas.values()
        self._broker.hosted.store.close_clean([(one.log, one.high_watermark) for one in replicas])

    def save(self, replicas: Iterable[Replica]) -> bool:
        """Whether the disk took the checkpoints."""
        points = [(replica.log, replica.high_watermark) for replica in replicas if not replica.removed]
        return self._saved(lambda: self._broker.hosted.store.save_checkpoints(points))

    def advance_start(self, replica: Replica, offset: int) -> bool:
        """Whether the disk took a log start offset, which moves only then (R11)."""
        entry = (replica.log, replica.high_watermark, offset)
        return self._saved(lambda: self._broker.hosted.store.advance_starts([entry]))

    def _saved(self, save: Callable[[], None]) -> bool:
        try:
            self._reserve.run(save)
        except OSError as error:
            self._broker.world.tell(f"broker {self._broker.id}: no checkpoint: {error}")
            return False
        return True
