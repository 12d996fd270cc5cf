"""The event loop that all blocking clients of a process share, in a daemon thread.

gRPC's asyncio API works best with one loop for each process. The thread starts with the first client,
stays in the parent after a fork, and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

from tidelog.errors import InvalidRequest

T = TypeVar("T")


class LoopThread:
    """The event loop that runs in a daemon thread until the process ends."""

    _shared: ClassVar[LoopThread | None] = None
    _shared_lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="tidelog", daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> LoopThread:
        """The loop thread of this process; started when it is first needed."""
        with cls._shared_lock:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    @classmethod
    def forget(cls) -> None:
        """Forgets the thread after a fork, because it stayed in the parent."""
        cls._shared = None
        cls._shared_lock = threading.Lock()

    @classmethod
    def stop(cls) -> None:
        """Stops the shared loop at the end of the process."""
        with cls._shared_lock:
            shared, cls._shared = cls._shared, None
        if shared is not None:
            shared.loop.call_soon_threadsafe(shared.loop.stop)
            shared._thread.join()
            shared.loop.close()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled if the waiting thread is interrupted."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidRequest(
                "a blocking call in the event loop's own thread would wait for itself; use asyncio there"
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
            raise


atexit.register(LoopThread.stop)
os.register_at_fork(after_in_child=LoopThread.forget)
