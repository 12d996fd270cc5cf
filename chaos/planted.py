"""Bugs that can be planted into every broker of a run, to see whether the run finds them.

Those of the simulator, by name (`python -m simulator --mutations`), and one that a cluster of real
processes meets at once, where most of the others want a coincidence that only the simulator brings about.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from simulator.mutations import mutations
from tidelog_broker.core.replication import leadership


@contextmanager
def a_leader_waits_for_nobody() -> Iterator[None]:
    """R3: what the leader has on its own disk is acknowledged, before any follower has it."""

    def alone(current: int, *, leader_durable: int, **_: Any) -> int:
        return max(current, leader_durable)

    with mock.patch.object(leadership, "next_high_watermark", alone):
        yield


def plants() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """By name."""
    ours = {"a leader waits for nobody": a_leader_waits_for_nobody}
    return {**{one.name: one.plant for one in mutations()}, **ours}


def planted(name: str) -> AbstractContextManager[Any]:
    """With the bug of that name; without any if it is empty."""
    return plants()[name]() if name else contextlib.nullcontext()
