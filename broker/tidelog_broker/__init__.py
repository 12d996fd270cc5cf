"""The broker: records, replicates and serves the partitions that it is given.

Layers, each of which knows only those below it: doors (`api`, `nats`), `runtime`
(asyncio: what runs when), `storage` (files) and `core` (rules without I/O), `errors`
and `model`. `__main__` reads the configuration, `service` joins the parts.
"""
