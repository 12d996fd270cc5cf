"""How a partition's replicas get the same records: the roles of a replica, performed, and their connections.

`replica` drives the state machines of `core.replication`, and `effects` performs what they ask for,
with what `host` (the broker) and `owner` (the partition) provide; `durability` says which records
count before a flush, and `placement` what the image says. `links` holds the connections to other
brokers: `uplink` is a follower's end, `feed` a leader's, and `wire` their messages. `peers` is what
it needs to know of other brokers.

The rules belong in `core.replication`. When something is written is decided in `writing`.
"""
