"""The cluster's metadata as one immutable value, and the commands that change it (DESIGN section 6).

What belongs here: the meaning of the metadata log's entries, and which entries may be written. What does
not: files, peers, elections of the log's own leader (`core.raft`), time (M3: it enters as a field of a
command).

The values
- `image`       brokers, streams, partitions, producer-id blocks
- `commands`    the commands of the log's entries, and their bytes
- `snapshot`, `delta`, `persistent`  an image as bytes, the difference of two images, the map under both

From an entry to the next image; no entry is refused
- `apply`       applies a command to an image
- `membership`  a broker registers, is fenced, loses logs, or is removed: what its replicas become (R10)
- `partition_change` one change of one partition
- `replication_factor` the replication factor follows the replicas
- `eligibility` which replicas hold everything committed (R6)
- `permissions` what the rules allow (A4)
- `feature_levels` what all brokers understand, and when it grows

From a request, or a moment, to an entry; everything that is wrong is refused
- `decisions`   functions of an image and a request
- `controller`  what one controller remembers, and the decisions that rest on it
"""
