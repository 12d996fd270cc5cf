"""The append guard of one log: built from the log at its first use, saved, and built again after a cut.

Neighbours: `storage.guard` has the guard itself and its snapshots, `writer` checks each batch with it.
"""

from __future__ import annotations

from tidelog.errors import FencedProducer, Unavailable, UnknownProducer
from tidelog.records import BatchHeader
from tidelog.records.layout import SinkTask
from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.storage.guard.sink_batches import KnownSinks, SinkBatch
from tidelog_broker.storage.guard.snapshots import GuardSnapshots, remove_guard_snapshots
from tidelog_broker.storage.log.state import LogState

DAMAGED_RETRY_MS = 1000


def sink_fenced(sink: int, run: int, newest: int) -> FencedProducer:
    """The refusal of a run of a sink that is not the newest."""
    return FencedProducer(
        f"run {run} of sink {sink} is over, because run {newest} has begun; another attempt of the query "
        f"writes now",
        run=newest,
    )


class LogGuard:
    """The guard of one log, if it is in memory, and its snapshots."""

    __slots__ = ("_guard", "_known_sinks", "_sink_runs", "_state", "has_gaps", "snapshots")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._guard: AppendGuard | None = None
        """None: not used yet, or the log was cut."""
        self.has_gaps = False
        """The guard lacks the content of damaged batches; it is built again once they are healed."""
        self.snapshots = GuardSnapshots(state.files, state.folder)
        self._sink_runs: dict[int, int] = {}
        """By sink: the newest run that asked what the sink has written; earlier runs may not write (S3)."""
        self._known_sinks = KnownSinks()

    @property
    def loaded(self) -> AppendGuard | None:
        """The append guard, if it is in memory."""
        return self._guard

    @property
    def current(self) -> AppendGuard:
        """The append guard; the first use builds it up to the log's end."""
        guard = self._guard
        if guard is None:
            state = self._state
            with state.writing:
                if self._guard is None:
                    self._guard, whole = self.snapshots.rebuild(state.segments, state.config.guard)
                    self.has_gaps = not whole
                guard = self._guard
        return guard

    # --- sinks

    def sink_batch(self, sink: int, run: int) -> tuple[SinkBatch | None, int]:
        """The newest batch of a sink (None: it wrote none), and the log's end; `run` fences earlier runs
        (S3).

        An append of an earlier run is either in the answer or refused, also if it waits to be written now.
        Raises `Unavailable` while batches of the log are damaged.
        """
        state = self._state
        with state.writing:
            guard = self.current
            if self.has_gaps:
                raise Unavailable(
                    "a batch of this log is damaged, so it is not known what the sink has written; try again "
                    "when the batch is healed",
                    retry_after_ms=DAMAGED_RETRY_MS,
                )
            self._sink_runs[sink] = max(run, self._sink_runs.get(sink, 0))
            found = guard.sinks.known.get(sink)
            # A copy, because the next append changes the tasks.
            batch = None if found is None else SinkBatch(found.batch_id, dict(found.tasks))
            return batch, state.end_offset

    def keep_sinks(self, known: KnownSinks) -> None:
        """Drops what sinks have written that the cluster has forgotten; from now on they are refused (S1).

        An append of a forgotten sink that waits to be written now is refused too: without the dropped state
        it would look like the first batch of a new sink.
        """
        guard = self._guard
        if not self._sink_runs and (guard is None or not guard.sinks.known):
            return
        with self._state.writing:
            self._known_sinks = known
            self._sink_runs = {sink: run for sink, run in self._sink_runs.items() if not known.lack(sink)}
            if self._guard is not None:
                self._guard.sinks.keep(known)

    def check_sink_run(self, header: BatchHeader, run: int) -> None:
        """Raises `FencedProducer` for a batch of a run of which a later run exists (S3).

        Raises `UnknownProducer` for a sink that the cluster has forgotten.
        """
        sink = SinkTask.of(header.producer_id).sink
        if self._known_sinks.lack(sink):
            raise UnknownProducer(f"sink {sink} has ended, and writes no more batches", sink=sink)
        newest = self._sink_runs.get(sink, 0)
        if run < newest:
            raise sink_fenced(sink, run, newest)

    def follow_config(self) -> None:
        """Applies the limits in the log's settings to the guard."""
        if self._guard is not None:
            self._guard.set_limits(self._state.config.guard)

    def save(self) -> None:
        """Writes a snapshot of the guard, if the guard changed and the disk accepts the write.

        The snapshot is durable with the next sync.
        """
        with self._state.writing:
            if self._guard is not None and self.snapshots.outdated:
                self.write_snapshot(self._guard)

    def write_snapshot(self, guard: AppendGuard) -> None:
        """Writes a snapshot of the guard, if the disk accepts the write. The caller holds `writing`.

        The snapshot is durable with the next sync.
        """
        held = self.snapshots.write(guard)
        if held is not None:
            with self._state.lock:
                self._state.unsynced.add_snapshot(guard.offset, held)

    def forget(self) -> None:
        """Drops the guard because the log is being cut: the next append builds it again."""
        self._guard = None

    def rebuild_behind(self, offset: int) -> None:
        """Drops the guard, so that the next append builds it again from all batches.

        Also removes the snapshots above `offset`, because they lack some batches.
        """
        state = self._state
        with state.syncing, state.writing:
            with state.lock:
                state.unsynced.drop_snapshots()
                self._guard, self.has_gaps = None, False
                self.snapshots.log_was_cut()
            remove_guard_snapshots(state.files, state.folder, above=offset)
