"""The controller's own state and work. It is not in the metadata log, so a new controller begins without it.

What belongs here: sessions, reports and clocks that one controller remembers, and the decisions that rest on
them. What does not: the image (`core.metadata.image`) and decisions that need only the image
(`core.metadata.decisions`).

- `registration`  a broker registers, loses logs, or is removed for good (R10, R19)
- `liveness`      sessions: which brokers are alive, by heartbeats (M3)
- `reports`       failure reports of brokers about each other (R14)
- `clocks`        the cluster's clock (R18)
- `deprioritized` brokers that should lead only if no other broker can (R6, 2c, F7)
- `handovers`     a leader settles its appends before another broker takes over (N5)
- `upkeep`        the commands that the controller makes without a request
"""
