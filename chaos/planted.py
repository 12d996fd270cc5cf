"""Bugs that can be planted into every broker of a run, to see whether the run finds them.

These are the simulator's (`python -m simulator --mutations`), by name, and one more. Most of the simulator's
bugs need a coincidence that real processes rarely meet; a cluster of real processes meets this one at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from simulator.mutations import mutations
from tidelog_broker.core.replication import commits


@contextmanager
def a_leader_waits_for_nobody() -> Iterator[None]:
    """Breaks R3: the leader acknowledges records that are on its own disk and on no follower's."""

    def alone(current: int, *, leader_durable: int, **_: Any) -> int:
        return max(current, leader_durable)

    with mock.patch.object(commits, "high_watermark", alone):
        yield


def plants() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """All bugs by name."""
    ours = {"a leader waits for nobody": a_leader_waits_for_nobody}
    return {**{one.name: one.plant for one in mutations()}, **ours}


def planted(name: str) -> AbstractContextManager[Any]:
    """Plants the bug of that name while the block lasts; an empty name plants none."""
    return plants()[name]() if name else contextlib.nullcontext()
