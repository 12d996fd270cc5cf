"""Gives all replicas of a partition the same records: the roles of replicas, and their connections.

`replica` drives the state machines of `core.replication`, and `effects` performs the actions that they
return, through the interfaces `host` (the broker) and `owner` (the partition). `durability` says which
records count before a flush, and `placement` reads a partition's replicas from the image. `links` holds
the connections to other brokers: `uplink` is a follower's end, `feed` a leader's end, and `wire` has the
messages. `peers` is the interface to the other brokers' addresses, states and controller.

The rules belong in `core.replication`. `writing` decides when something is written.
"""
