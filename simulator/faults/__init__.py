"""The faults of a run, and the administration that happens beside them.

- `schedule`        injects all of them, each as often as the plan says
- `processes`       processes that end or pause
- `network`         cuts
- `disks`           disks that are lost, full or rotten, failed flushes, misplaced folders
- `volumes`         volumes that are put back from a copy, and files that rot
- `clocks`          clocks that jump
- `administration`  deletions, minima, reassignments, leadership moves
- `settings`        changes of durability, retention and sizes
- `recoveries`      forced recoveries of the metadata

Faults of NATS servers are in `simulator.nats.faults`. How often a fault happens is in `simulator.plans`.
"""
