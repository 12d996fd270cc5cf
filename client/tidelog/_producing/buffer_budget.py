"""A bound on buffered bytes, shared by all partitions of a producer (`buffer_bytes_max`)."""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.errors import ResourceExhausted


class BufferFull(ResourceExhausted):
    """The producer's own buffer has no room for `size` bytes."""

    def __init__(self, size: int, message: str) -> None:
        super().__init__(message)
        self.size = size


class Budget:
    """Bytes of buffer memory, and the callers that wait for some of them, in their order."""

    __slots__ = ("_waiting", "bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        """Never more than `bytes_max`."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<Budget {self.used}/{self.bytes_max} waiting={len(self._waiting)}>"

    def take(self, size: int) -> bool:
        """Takes `size` bytes if they are free."""
        if self.used + size > self.bytes_max:
            return False
        self.used += size
        return True

    def full(self, size: int) -> BufferFull:
        """The error to raise when `take` finds no room and the caller cannot wait."""
        return BufferFull(
            size,
            f"the producer's buffer is full: {self.used} of {self.bytes_max} bytes "
            "(buffer_bytes_max); wait with drain(), or use send()",
        )

    def release(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        # Each caller tries `take` again; waking no more than fit keeps the order.
        free = self.bytes_max - self.used
        while self._waiting:
            size, future = self._waiting[0]
            if not future.done():
                if size > free:
                    return
                free -= size
                future.set_result(None)
            self._waiting.popleft()

    async def room(self, size: int) -> None:
        """Waits until `size` bytes may be free; the caller then tries `take`."""
        if self.used + size <= self.bytes_max:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            await future
        except asyncio.CancelledError:
            self._wake()
            raise

    def wake_all(self) -> None:
        """Lets all waiting callers try again, when the producer stops."""
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
