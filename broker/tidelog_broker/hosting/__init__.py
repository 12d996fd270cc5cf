"""One running broker: its parts put together, and the partitions that the image places on it.

`broker` is the list of parts, which `parts` makes within `broker_limits`. `image_follower` makes, changes and
removes the `hosted_partitions` as the image says; `replica_host` and `quorum_peers` connect
replicas to the rest of the broker. `handover` settles leaderships before they move, `producer_ids`
knows which ids were given out, `record_deletion` deletes records on demand, `readiness` says when
the broker is ready, `samples` what it shows of itself, and `threads` which threads it has.

What a part does belongs in the package that the part is from.
"""
