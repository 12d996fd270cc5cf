"""Variations of a plan. A profile makes likely what few seeds have; a planted bug may name the one it needs.

- `catalog`    all profiles by name
- `varying`    how a profile changes a plan: no faults but those that it names
- `quorum`     the metadata quorum
- `leaders`    leadership of partitions
- `followers`  the ISR, its minimum, and reassignments
- `processes`  processes and machines that end
- `disks`      disks, volumes, and flushes
- `deletion`   records and streams that are deleted
- `clients`    what clients ask for
- `nats`       streams that record subjects

The plan of a seed without a profile is `simulator.plans.swarm`'s.
"""
