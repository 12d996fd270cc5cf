"""The threads of a broker: one pool for each kind of work that blocks, none per partition.

They are apart so that no kind waits for another (DESIGN 4.7): a slow catch-up read stalls
no flush, and a deletion no write. What runs in which is said by those who use them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeAlias, TypeVar

from tidelog.errors import Stopping

MakeThreads: TypeAlias = Callable[[int, str], Executor]
"""So many threads with such a name."""

CREATIONS_MAX = 8
"""Partitions made at a time: each waits for its folder to be on disk."""

STOPPING_RETRY_MS = 500

P = ParamSpec("P")
T = TypeVar("T")


class WorkThreads(Executor):
    """Threads that answer `Stopping` to what they did not begin before their stop.

    Calls are still answered while a broker stops, so work may arrive at any moment of it. It is never
    dropped without an answer, and handing it over never raises: the refusal is the work's own outcome.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._stopped = False

    def __repr__(self) -> str:
        return f"<WorkThreads {self._pool!r}{' stopped' if self._stopped else ''}>"

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has `function` called in a thread; the future's error is `Stopping` if it was not begun."""

        def work() -> T:
            if self._stopped:
                raise self._stopping()
            return function(*args, **kwargs)

        if not self._stopped:
            try:
                return self._pool.submit(work)
            except RuntimeError:
                # Another thread stopped the pool meanwhile, or the interpreter ends.
                if not self._stopped:
                    raise
        refused: Future[T] = Future()
        refused.set_exception(self._stopping())
        return refused

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begins nothing more; what waits is answered at once. `wait`: for what has begun."""
        self._stopped = True
        # Nothing is cancelled: a caller that waits would take that for the end of its own task.
        self._pool.shutdown(wait=wait)

    @staticmethod
    def _stopping() -> Stopping:
        return Stopping("the broker is stopping; it begins no more work", retry_after_ms=STOPPING_RETRY_MS)


class Threads:
    """Named for what they do, as they appear in a process listing."""

    def __init__(
        self,
        *,
        flush_threads: int,
        catch_up_threads: int,
        decode_threads: int,
        validation_threads: int,
        make: MakeThreads = ThreadPoolExecutor,
    ) -> None:
        self.write = WorkThreads(make(1, "tidelog-write"))
        """Write rounds that are too large for the event loop, and what excludes them."""
        self.flush_lead = WorkThreads(make(1, "tidelog-flush"))
        """Leads a flush round, and waits for its files."""
        self.flush_files = WorkThreads(make(flush_threads, "tidelog-flush-file"))
        """Flush the files of a round; before that, open the logs at a start."""
        self.catch_up = WorkThreads(make(catch_up_threads, "tidelog-catch-up"))
        """Reads of what is no longer in memory."""
        self.decode = WorkThreads(make(decode_threads, "tidelog-decode"))
        """Turns batches into plain records for readers."""
        self.validation = WorkThreads(make(validation_threads, "tidelog-validate"))
        """Checks what clients send, where that takes long."""
        self.housekeeping = WorkThreads(make(1, "tidelog-housekeeping"))
        """Checkpoints, retention, deletion."""
        self.scrub = WorkThreads(make(1, "tidelog-scrub"))
        """Looks for rot, and heals it."""
        self.creation = WorkThreads(make(CREATIONS_MAX, "tidelog-create"))

    def shutdown(self, *, wait: bool) -> None:
        """Begins no more work: what has not begun is answered `Stopping`. `wait`, blocking, for what has."""
        pools = (
            self.write, self.flush_lead, self.flush_files, self.catch_up, self.decode, self.validation,
            self.housekeeping, self.scrub, self.creation,
        )  # fmt: skip
        for pool in pools:
            pool.shutdown(wait=False)
        if wait:
            for pool in pools:
                pool.shutdown()
