"""Faults on real brokers under load, and a judgement of what the clients saw.

A run starts three broker processes and a NATS server on this machine. Clients write and read all the time,
and a seeded schedule injects faults: processes are killed, stopped and frozen, the network is cut in one or
both directions, disks are slow, full or lost. Then the run ends all faults. `tidelog.history` finds records
that were lost, doubled or moved, and `tidelog verify --cluster` compares all replicas. The simulator
(`simulator/`) controls every interleaving and has no operating system; chaos has real processes and no such
control.

- `cluster`         the broker processes and the NATS server
- `broker`, `disk`  a broker process whose disk can be slow or full
- `proxy`, `links`  the network between brokers
- `clocks`          clocks that jump, by libfaketime
- `load`            clients of the library; `nats_load`: publishers to NATS
- `recording`       the history: what the clients were told and what they read
- `trust`, `certificates`  TLS and authentication of a run
- `setup`           how many brokers, streams and clients a run has
- `harness`         starts the cluster and the load, waits until all is healed, asks for the verdict
- `plan`            which fault when (pure); `faults`, `volumes` and `administration` perform them
- `run`             a run with faults by a plan; `scenarios`: runs that measure one event
- `spark`           kills on a Spark cluster, with a command of its own
- `planted`         bugs that a run must find
- `figures`         what was measured; `verdict`: what was found

Tidelog imports nothing of this package. Faults inside one process belong to `simulator/`.
"""

import os

# The run starts processes while its clients use gRPC. No process continues as a copy of the run (fork).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
