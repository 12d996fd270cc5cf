"""Performs a run event by event, and looks after each event for violations and dead processes.

Neighbours: `world` has the events, `checks` the invariants; `run` and `liveness` say until when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.checks import require
from simulator.cluster import Cluster
from simulator.kernel.processes import unhandled
from simulator.world import SECOND

FULL_CHECK_EVENTS: Final = 5_000
"""After so many events all logs are read again."""

STALL_CHECK_EVENTS: Final = 500
"""After so many events the checks look for appends that are not committed."""

CONDITION_EVENTS: Final = 200
"""After so many events `until` looks at its condition."""


class Steps:
    """The events of one run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._full_at = FULL_CHECK_EVENTS

    def step(self) -> None:
        """Performs the next event. Raises Violated, and every error that a process did not handle."""
        world, checks = self._cluster.world, self._cluster.checks
        if not world.step():
            require(False, "liveness", "No event is planned any more.")
        if world.alarmed:
            world.alarmed = False
            self._attend()
        if world.events >= self._full_at:
            self._full_at = world.events + FULL_CHECK_EVENTS
            checks.full()
        if world.events % STALL_CHECK_EVENTS == 0:
            checks.stalled()

    def until(self, condition: Callable[[], bool], seconds: float, what: str | Callable[[], str]) -> None:
        """Steps until `condition` holds. After `seconds` of simulated time, raises Violated with `what`,
        which says why the condition does not hold."""
        world = self._cluster.world
        deadline = world.now + int(seconds * SECOND)
        looked = 0
        while True:
            if world.events >= looked:
                looked = world.events + CONDITION_EVENTS
                if condition():
                    return
            if world.now >= deadline:
                why = what() if callable(what) else what
                require(False, "liveness", f"After {seconds:g} s of simulated time: {why}")
            self.step()

    def _attend(self) -> None:
        """An event ended the run, or a process."""
        cluster = self._cluster
        if cluster.checks.violated is not None:
            raise cluster.checks.violated
        for node in cluster.nodes.values():
            process = node.process
            if process is None:
                continue
            if node.disk.dead:
                cluster.checks.mark("4 killed in a write")
                cluster.end(node, power=cluster.rng.random() < 0.5)
            elif process.loop.errors:
                raise unhandled(f"broker {node.id}", process.loop.errors[0])
