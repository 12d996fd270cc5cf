"""Kills on a Spark cluster: streams are copied while drivers, executors and brokers die.

A run starts three brokers and a standalone Spark cluster on this machine: a master, and two workers whose
executors are processes of their own. Records flow into a source while a job writes them to a target, and a
seeded schedule kills one process after the other. Then the run judges the target by offsets.

- `machines`      the brokers and the Spark cluster
- `jobs`          the driver of each target, and what the target has at the end
- `copying`       the program of the driver that writes to a stream
- `flow`          sends the records of the source
- `victims`       finds a process by its kind, and kills it
- `run`           joins these: kills by a schedule, the end, the evidence
- `evidence`      what happened, from Spark's event log and the headers in the log
- `checking`      compares source and target (pure)
- `reshuffle`     a batch that is killed and repeated with another number of shuffle partitions

``python -m chaos.spark --help`` names the options; docs/chaos.md describes the run.
"""
