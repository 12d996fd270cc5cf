"""The threads of a broker: one pool for each kind of work that blocks, none per partition.

The pools are separate, so that one kind of work does not wait for another (DESIGN 4.7): a slow
catch-up read delays no flush, and a deletion delays no write. The users of a pool decide what runs in it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeAlias, TypeVar

from tidelog.errors import Stopping

MakeThreads: TypeAlias = Callable[[int, str], Executor]
"""Creates a pool from a number of threads and their name."""

CREATIONS_MAX = 8
"""How many partitions are created at a time; each waits until its folder is on disk."""

STOPPING_RETRY_MS = 500

P = ParamSpec("P")
T = TypeVar("T")


class WorkThreads(Executor):
    """Threads that answer `Stopping` to work that did not begin before their stop.

    A stopping broker still answers calls, so work may arrive at any time during a stop. Work is never
    dropped without an answer, and `submit` never raises `Stopping`: the refusal is the outcome of the work.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._stopped = False

    def __repr__(self) -> str:
        return f"<WorkThreads {self._pool!r}{' stopped' if self._stopped else ''}>"

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Calls `function` in a thread; the future's error is `Stopping` if the call did not begin."""

        def work() -> T:
            if self._stopped:
                raise self._stopping()
            return function(*args, **kwargs)

        if not self._stopped:
            try:
                return self._pool.submit(work)
            except RuntimeError:
                # Another thread stopped the pool meanwhile, or the interpreter is ending.
                if not self._stopped:
                    raise
        refused: Future[T] = Future()
        refused.set_exception(self._stopping())
        return refused

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begins no more work; waiting work is answered at once. `wait`: waits for work that has begun."""
        self._stopped = True
        # No future is cancelled: a waiting caller would take that as a cancellation of its own task.
        self._pool.shutdown(wait=wait)

    @staticmethod
    def _stopping() -> Stopping:
        return Stopping("the broker is stopping; it begins no more work", retry_after_ms=STOPPING_RETRY_MS)


class Threads:
    """The pools of a broker. A pool's name says what it does, and appears in process listings."""

    def __init__(
        self,
        *,
        flush_threads: int,
        catch_up_threads: int,
        decode_threads: int,
        projection_threads: int,
        validation_threads: int,
        make: MakeThreads = ThreadPoolExecutor,
    ) -> None:
        self.write = WorkThreads(make(1, "tidelog-write"))
        """Does write rounds that the event loop does not do, and work that excludes write rounds."""
        self.flush_lead = WorkThreads(make(1, "tidelog-flush"))
        """Leads a flush round, and waits for its files."""
        self.flush_files = WorkThreads(make(flush_threads, "tidelog-flush-file"))
        """Flushes the files of a round; at a start, opens the logs."""
        self.catch_up = WorkThreads(make(catch_up_threads, "tidelog-catch-up"))
        """Reads records that are no longer in memory."""
        self.decode = WorkThreads(make(decode_threads, "tidelog-decode"))
        """Turns batches into plain records for readers."""
        self.project = WorkThreads(make(projection_threads, "tidelog-project"))
        """Filters batches for readers."""
        self.validation = WorkThreads(make(validation_threads, "tidelog-validate"))
        """Checks data that clients send, if the check takes long."""
        self.housekeeping = WorkThreads(make(1, "tidelog-housekeeping"))
        """Writes checkpoints, applies retention, deletes files."""
        self.scrub = WorkThreads(make(1, "tidelog-scrub"))
        """Looks for damaged data on disk, and repairs it."""
        self.creation = WorkThreads(make(CREATIONS_MAX, "tidelog-create"))

    def shutdown(self, *, wait: bool) -> None:
        """Begins no more work; waiting work is answered `Stopping`. `wait`: blocks until begun work ends."""
        pools = (
            self.write, self.flush_lead, self.flush_files, self.catch_up, self.decode, self.project,
            self.validation, self.housekeeping, self.scrub, self.creation,
        )  # fmt: skip
        for pool in pools:
            pool.shutdown(wait=False)
        if wait:
            for pool in pools:
                pool.shutdown()
