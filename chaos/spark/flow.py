"""Sends the records of the source, a little ahead of what the job has written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from tidelog import blocking

SOURCE: Final = "source"
PARTITIONS: Final = 4
VALUE_BYTES: Final = 300
BATCH_RECORDS: Final = 10
"""Of the source's record batches: a task reads more than a hundred of them."""

MICRO_BATCH_RECORDS: Final = 6_000
AHEAD_RECORDS: Final = 2 * MICRO_BATCH_RECORDS
"""The source is at most so many records ahead of the newest micro-batch."""

PAUSE_SECONDS: Final = 0.05


def value_of(partition: int, offset: int) -> bytes:
    return (b"%d:%d:" % (partition, offset)).ljust(VALUE_BYTES, b".")


class Flow:
    """A thread that writes to the source until it is stopped."""

    def __init__(self, servers: list[str], planned: Callable[[], int]) -> None:
        """`planned`: how many records of the source are in micro-batches so far."""
        self._servers, self._planned = servers, planned
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)
        self.sent = 0
        """Records that are acknowledged."""
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds_max: float) -> None:
        """Returns when everything that was sent is acknowledged; raises what ended the thread early."""
        self._stop.set()
        self._thread.join(seconds_max)
        if self._thread.is_alive():
            raise TimeoutError(f"the source did not take its records within {seconds_max:g} s")
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with blocking.connect(self._servers) as log, log.producer(SOURCE) as producer:
                offset = 0
                while not self._stop.is_set():
                    if self.sent >= self._planned() + AHEAD_RECORDS:
                        self._stop.wait(PAUSE_SECONDS)
                        continue
                    for partition in range(PARTITIONS):
                        numbers = range(offset, offset + BATCH_RECORDS)
                        values = pa.array([value_of(partition, one) for one in numbers], pa.binary())
                        producer.send_batch(pa.record_batch({"value": values}), partition=partition)
                    offset += BATCH_RECORDS
                    self.sent = offset * PARTITIONS
        except BaseException as error:
            self.failure = error
