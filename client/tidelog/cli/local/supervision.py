"""What `tidelog dev` does when one of its processes ends.

A broker that has others beside it is started again. With one broker, or without the NATS server, there
is nothing left to try things with.
"""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from collections.abc import Sequence

from rich.console import Console

from tidelog.cli.local.local_cluster import LocalCluster
from tidelog.cli.local.processes import Child

RESTART_SECONDS = 1.0
"""How long a broker that ended stays away: long enough to see what the others make of it."""

RESTARTS_MAX = 3
"""Of one broker within a minute; one that ends more often than that does not work."""

RESTARTS_WITHIN_SECONDS = 60.0

LOOK_SECONDS = 0.5
"""A signal that comes in the moment before a wait begins is acted on only when the wait has ended."""


def until_it_cannot_go_on(cluster: LocalCluster, screen: Console) -> Child:
    """Starts brokers again that end while there are others; the child that cannot be made up for."""
    restarts: dict[int, deque[float]] = {broker: deque(maxlen=RESTARTS_MAX) for broker in cluster.brokers}
    while True:
        ended = _first_to_end(cluster.children)
        broker = next((number for number, child in cluster.brokers.items() if child is ended), None)
        if broker is None or cluster.count == 1:
            return ended
        recent = restarts[broker]
        if len(recent) == RESTARTS_MAX and time.monotonic() - recent[0] < RESTARTS_WITHIN_SECONDS:
            return ended
        recent.append(time.monotonic())
        screen.print(f"{ended.name} {ended.how_it_ended()}; it is started again", markup=False)
        time.sleep(RESTART_SECONDS)
        cluster.launch(broker)


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
