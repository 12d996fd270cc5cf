"""Planted bugs: each breaks one rule, and the checks must catch it. A test of the test.

A mutation replaces one function or value of the product by the code of a programmer that does not know the
rule. `python -m simulator --mutations` runs seeds with each mutation until an invariant fails. The name of a
mutation is the name of its function. `plant` registers them; the other modules have one subject each:

- `raft`, `drivers`         the metadata log: votes and commits, and how they are saved
- `elections`, `membership` leaders, fencing, the ISR, and reassignments
- `roles`, `links`          roles of replicas, and messages between them
- `histories`, `commits`    logs that are made equal, and the high watermark
- `rounds`, `appends`       writes, flushes, and answers to producers
- `stores`, `disks`         the order of writes to the disk, and the recovery at a start
- `clocks`, `recoveries`    clocks, old volumes, and forced recoveries
- `send_window`, `nats`     the client library, and the recorder
- `sinks`                   batches of jobs that are written exactly once
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
    sinks,
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
    "sinks",
    "stores",
    "uncaught_mutations",
]
