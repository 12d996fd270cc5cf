"""Clients of a simulated cluster. They use the client library as users do.

- `client`      a process with the client library
- `producers`   producers of numbered records
- `readers`     readers that follow a partition
- `sinks`       jobs that write their batches exactly once
- `population`  all producers, readers and jobs of a run
- `renewals`    clients of a stream that is deleted and created again under its name

Publishers to NATS belong to `simulator.nats`.
"""
