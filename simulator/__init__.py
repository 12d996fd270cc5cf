"""Whole clusters of the production broker in one process, deterministic by seed, with faults and checks.

The broker, its storage and its rules are the product's. Everything below and around them is simulated:

- `world`      time, chance and the trace of a run
- `kernel`     event loops, threads, processes and the network
- `disk`       a disk that tears writes and loses bytes that were not synced
- `rpc`        calls between clients and brokers, in the place of gRPC
- `service`, `node`  a broker on a simulated machine
- `cluster`    all brokers of a run, and the network between them
- `clients`    producers and readers with the client library
- `nats`       NATS servers and publishers
- `plans`      which brokers, clients and faults a seed has
- `faults`     injects them
- `watch`      observes states and messages of the brokers
- `checks`     the invariants of docs/replication.md
- `steps`, `liveness`, `run`  a run, event by event, from its beginning to its verdict
- `coverage`   which rules the runs exercised
- `mutations`  planted bugs, which the checks must catch

Tidelog imports nothing of this package; tests of storage use `disk`. Real processes belong to `chaos/`.
"""
