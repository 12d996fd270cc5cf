"""The cluster in memory for tests with `tidelog.blocking`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tidelog import blocking
from tidelog._blocking.loop_thread import LoopThread
from tidelog.testing._cluster import FakeCluster

T = TypeVar("T")


class BlockingFakeCluster:
    """A `FakeCluster` in the event loop of the blocking clients, made by `blocking_cluster`."""

    def __init__(self, brokers: int = 3) -> None:
        self._thread = LoopThread.shared()

        async def make() -> FakeCluster:
            return FakeCluster(brokers)

        self._fake = self._thread.run(make())

    def __repr__(self) -> str:
        return f"<blocking {self._fake!r}>"

    def connect(self, **settings: Any) -> blocking.Client:
        """A client like that of `tidelog.blocking.connect`; `settings` as for `FakeCluster.connect`."""

        async def make() -> blocking.Client:
            return blocking.Client(self._thread, await self._fake.connect(**settings))

        return self._thread.run(make())

    def do(self, change: Callable[[FakeCluster], T]) -> T:
        """The result of `change`, called in the cluster's thread: ``do(lambda it: it.leader("s"))``."""

        async def call() -> T:
            return change(self._fake)

        return self._thread.run(call())


@contextmanager
def blocking_cluster(brokers: int = 3) -> Iterator[BlockingFakeCluster]:
    """A cluster in memory with this number of brokers. Close its clients before it ends."""
    yield BlockingFakeCluster(brokers)
