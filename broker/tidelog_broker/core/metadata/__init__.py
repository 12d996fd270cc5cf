"""The cluster's metadata as one immutable value, and the commands that change it (DESIGN section 6).

What belongs here: the meaning of the metadata log's entries, and which entries may be written. What does
not: files, peers, elections of the log's own leader (`core.raft`), time (M3: it enters as a field of a
command).

- `image`      the value: brokers, streams, partitions, producer-id blocks
- `commands`   what an entry of the log can say, and its bytes
- `snapshot`, `delta`, `persistent`  an image as bytes, what differs between two, the map under both

From an entry to the next image; nothing is refused:

- `apply`      image and command to the next image
- `membership` what a broker's coming and going does to its replicas (R10)
- `partition_change` one change at one partition
- `feature_levels` what all brokers understand, and when that grows
- `eligibility` who is sure to hold everything committed (R6)

From a request, or from nothing, to an entry; everything that is wrong is refused here:

- `decide`       streams and producer ids; `placing` where new partitions go
- `registration` a broker says who it is, loses logs, or is gone for good (R10)
- `elections`    who leads (R6)
- `isr_changes`  who is in sync, as its leader proposes (R4)
- `reassignment` replicas move; `spreading` says where they should lie
- `stopping`     a broker asks whether it can stop (K2)
- `liveness`, `reports`  who is alive, by heartbeats (M3) and by what others say (R14)
- `handovers`    a leader settles what it has appended before another takes over (N5)
- `upkeep`       what the controller does unasked
- `quorum_plan`  who votes on the log itself (M1, M2)

For those who look:

- `standing`       what an image says of brokers and partitions that they should know
"""
