"""Decisions: an image and a request in, the entry for the metadata log out, or a typed refusal.

What belongs here: pure functions that refuse everything that is wrong; `apply` never refuses. What does not:
what one controller remembers between two decisions (`core.metadata.controller`).

- `streams`      creating, changing and deleting streams; producer ids
- `access`       rules and tokens (A1, A4)
- `sinks`        sinks, their runs and batches (S3)
- `placing`      where new partitions go
- `elections`    which broker leads a partition (R6)
- `isr_changes`  the ISR of a partition, as its leader proposes (R4)
- `reassignment` replicas move; cordon and drain
- `spreading`    where replicas should be
- `brokers`      a broker that a request names, and its version
- `stopping`     whether a broker can stop (K2)
- `quorum_plan`  which brokers vote on the metadata log (M1, M2)
- `standing`     the state of brokers and partitions, for status output
"""
