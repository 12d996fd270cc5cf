"""Clients of a simulated cluster. They use the client library as users do.

- `client`      a process with the client library
- `producers`   producers of numbered records
- `readers`     readers that follow a partition
- `population`  all producers and readers of a run
- `renewals`    clients of a stream that is deleted and created again under its name

Publishers to NATS belong to `simulator.nats`.
"""
