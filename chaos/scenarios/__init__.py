"""Scenarios: runs that repeat one event instead of faults by chance, under the same load and verdict.

A scenario measures its event (`chaos.figures`) and makes claims; a claim that fails is an anomaly.

- `catalog`        all scenarios by name
- `growth`         a cluster of one broker grows to five, and two leave
- `partition`      a leader is cut off from both followers
- `cut`            a leader and one follower are cut off from each other
- `nats`           the leader of a recorded subject is killed
- `roll`           a rolling restart
- `rotation`       certificates, tokens and the authority are replaced
- `steps`          steps and claims that several scenarios share
- `direct_client`  a client of one broker, without the library

Faults by chance belong to `chaos.plan` and `chaos.faults`.
"""
