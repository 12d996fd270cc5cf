"""The rules, without I/O: deterministic functions and state machines (DESIGN 2).

No module below imports asyncio, grpc, os, time, random, threading, logging or uuid: time,
randomness and identifiers are arguments, so that a simulator can replay a run. The three parts do not
know each other.

- `raft`        consensus on the metadata log
- `metadata`    the cluster's metadata, its commands, and the decisions of the controller
- `replication` how the replicas of a partition stay equal
"""
