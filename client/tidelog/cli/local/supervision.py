"""What `tidelog dev` does when one of its processes ends.

Of several brokers, one that ends is started again, also while the cluster starts. With one broker, or
without the NATS server, there is nothing left to try things with, and everything stops.
"""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from rich.console import Console

from tidelog.cli.errors import fail
from tidelog.cli.local.local_cluster import BROKER_READY_SECONDS_MAX, LocalCluster
from tidelog.cli.local.processes import Child
from tidelog.cli.local.waiting import POLL_SECONDS

RESTART_SECONDS: Final = 1.0
"""How long a broker that ended stays away: long enough to see how the other brokers take over."""

RESTARTS_MAX: Final = 3
"""Of one broker within `RESTARTS_WITHIN_SECONDS`. A broker that ends more often does not work."""

RESTARTS_WITHIN_SECONDS: Final = 60.0

LOOK_SECONDS: Final = 0.5
"""A signal that comes in the moment before a wait begins is acted on only when the wait has ended."""


class Supervision:
    """Starts the brokers of one cluster again when they end, within `RESTARTS_MAX`."""

    def __init__(self, cluster: LocalCluster, screen: Console) -> None:
        self._cluster = cluster
        self._screen = screen
        self._restarts: dict[int, deque[float]] = {}
        """When each broker was last started again; `time.monotonic`."""

    def wait_ready(self) -> None:
        """Returns when every broker serves; fails if a process cannot be replaced or is too slow."""
        waiting = {broker: _deadline() for broker in self._cluster.brokers}
        while waiting:
            for child in self._cluster.children:
                if not child.running:
                    broker = self._start_again(child)
                    if broker is None:
                        fail(f"{child.subject} {child.how_it_ended()}")
                    waiting[broker] = _deadline()
            for broker, deadline in list(waiting.items()):
                if self._cluster.is_ready(broker):
                    del waiting[broker]
                elif time.monotonic() > deadline:
                    fail(self._cluster.brokers[broker].too_slow(BROKER_READY_SECONDS_MAX))
            time.sleep(POLL_SECONDS)

    def until_it_cannot_go_on(self) -> Child:
        """Returns the first process that ended and cannot be replaced."""
        while True:
            ended = _first_to_end(self._cluster.children)
            if self._start_again(ended) is None:
                return ended

    def _start_again(self, ended: Child) -> int | None:
        """The number of the broker that was started again; None: this process cannot be replaced."""
        cluster = self._cluster
        broker = next((number for number, child in cluster.brokers.items() if child is ended), None)
        if broker is None or cluster.count == 1:
            return None
        recent = self._restarts.setdefault(broker, deque(maxlen=RESTARTS_MAX))
        if len(recent) == RESTARTS_MAX and time.monotonic() - recent[0] < RESTARTS_WITHIN_SECONDS:
            return None
        recent.append(time.monotonic())
        self._screen.print(f"{ended.subject} {ended.how_it_ended()}; it is started again", markup=False)
        time.sleep(RESTART_SECONDS)
        cluster.launch(broker)
        return broker


def _deadline() -> float:
    return time.monotonic() + BROKER_READY_SECONDS_MAX


def _first_to_end(children: Sequence[Child]) -> Child:
    for child in children:
        if not child.running:
            return child
    with selectors.DefaultSelector() as selector:
        fds = [os.pidfd_open(child.process.pid) for child in children]
        try:
            for fd, child in zip(fds, children, strict=True):
                selector.register(fd, selectors.EVENT_READ, child)
            while not (ready := selector.select(LOOK_SECONDS)):
                pass
            ended: Child = ready[0][0].data
            ended.process.wait()
            return ended
        finally:
            for fd in fds:
                os.close(fd)
