"""Faults on real brokers under load, and a judgement of what clients saw.

Three broker processes and a NATS server on this machine, clients that write and read all the time, and
faults by a seeded schedule: processes killed, stopped and frozen, networks cut in one direction or both,
disks that are slow, full or lost. Then everything is healed, and `tidelog.history` says whether a record
was lost, doubled or moved, `tidelog verify --cluster` whether all replicas hold the same. The
simulator (`simulator/`) knows every interleaving and no operating system; this is the other way round.

What belongs here: `cluster` (the processes), `proxy` and `links` (the network between brokers), `disk` and
`broker` (a broker whose disk obeys), `load` and `nats_load` (clients), `recording` (what they saw), `verdict`
(the end), `figures` (what was measured), `setup` (who takes part), and `stage`, which joins them. On it
stand `run`, with `plan` (which fault when, pure) and `faults` (performing them), and `scenarios`, one story
each. Nothing here is imported by Tidelog.
"""

import os

# The run starts processes while its clients use gRPC, and none of them is to go on as a copy of it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
