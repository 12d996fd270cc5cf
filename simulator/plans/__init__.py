"""The plan of a run: which brokers, clients, network and faults it has.

- `plan`      the values of a plan
- `swarm`     draws the plan of a seed
- `nats`      adds NATS to a plan
- `profiles`  variations of a plan, by name

Plans are values; `simulator.faults` and `simulator.clients` perform them.
"""
