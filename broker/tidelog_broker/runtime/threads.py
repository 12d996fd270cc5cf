"""The threads of a broker: one pool for each kind of work that blocks, none per partition.

They are apart so that no kind waits for another (DESIGN 4.7): a slow catch-up read stalls
no flush, and a deletion no write. What runs in which is said by those who use them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

CREATIONS_MAX = 8
"""Partitions made at a time: each waits for its folder to be on disk."""


class Threads:
    """Named for what they do, as they appear in a process listing."""

    def __init__(
        self, *, flush_threads: int, catch_up_threads: int, decode_threads: int, validation_threads: int
    ) -> None:
        self.write = ThreadPoolExecutor(1, "tidelog-write")
        """Write rounds that are too large for the event loop, and what excludes them."""
        self.flush_lead = ThreadPoolExecutor(1, "tidelog-flush")
        """Leads a flush round, and waits for its files."""
        self.flush_files = ThreadPoolExecutor(flush_threads, "tidelog-flush-file")
        """Flush the files of a round; before that, open the logs at a start."""
        self.catch_up = ThreadPoolExecutor(catch_up_threads, "tidelog-catch-up")
        """Reads of what is no longer in memory."""
        self.decode = ThreadPoolExecutor(decode_threads, "tidelog-decode")
        """Turns batches into plain records for readers."""
        self.validation = ThreadPoolExecutor(validation_threads, "tidelog-validate")
        """Checks what clients send, where that takes long."""
        self.housekeeping = ThreadPoolExecutor(1, "tidelog-housekeeping")
        """Checkpoints, retention, deletion."""
        self.scrub = ThreadPoolExecutor(1, "tidelog-scrub")
        """Looks for rot, and heals it."""
        self.creation = ThreadPoolExecutor(CREATIONS_MAX, "tidelog-create")

    def shutdown(self, *, wait: bool) -> None:
        """Takes no more work and drops what has not begun; `wait` for what has."""
        for pool in (
            self.write, self.flush_lead, self.flush_files, self.catch_up, self.decode, self.validation,
            self.housekeeping, self.scrub, self.creation,
        ):  # fmt: skip
            pool.shutdown(wait=wait, cancel_futures=True)
