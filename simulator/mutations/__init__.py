"""Planted bugs: rules broken one at a time, each of which the simulator has to catch. A test of the test.

A mutation replaces one function or value of the code that decides or performs, as somebody might write it
who did not know the rule. `python -m simulator --mutations` runs seeds with each of them until an invariant
fails. One module a subject; `plant` is how it is done.
"""

from __future__ import annotations

from simulator.mutations import (
    appends,
    clocks,
    commits,
    disks,
    drivers,
    elections,
    histories,
    links,
    membership,
    nats,
    raft,
    recoveries,
    roles,
    rounds,
    send_window,
    stores,
)
from simulator.mutations.plant import SEEDS_MAX, Mutation, mutations, patched, uncaught_mutations

__all__ = [
    "SEEDS_MAX",
    "Mutation",
    "appends",
    "clocks",
    "commits",
    "disks",
    "drivers",
    "elections",
    "histories",
    "links",
    "membership",
    "mutations",
    "nats",
    "patched",
    "raft",
    "recoveries",
    "roles",
    "rounds",
    "send_window",
    "stores",
    "uncaught_mutations",
]
