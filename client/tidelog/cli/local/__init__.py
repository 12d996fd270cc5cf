"""A cluster on this machine: `tidelog dev`, and the parts that `tidelog demo` uses too.

`dev` has the command. `local_cluster` starts brokers and a NATS server as child `processes`. `nats_server`
finds the NATS program, and `supervision` starts a broker again that ended. `waiting` waits until a condition
holds.
"""
