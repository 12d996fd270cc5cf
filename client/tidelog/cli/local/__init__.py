"""A cluster on this machine: `tidelog dev`, and what it shares with `tidelog demo`.

`local_cluster` starts brokers and a NATS server as child `processes`, `nats_server` finds the
program, and `supervision` starts a broker again that ended. `waiting` is what everything here
that waits for a condition uses.
"""
