"""One running broker: its parts put together, and the partitions that the image places on it.

`broker` is the list of parts; `parts` makes them within `broker_limits`. `image_follower` creates, changes
and removes the `hosted_partitions` as the image says; `replica_host` and `quorum_peers` connect
replicas to the rest of the broker. `handover` settles leaderships before they move, `producer_ids`
knows which ids were given out, `sink_runs` which run of a sink may write, `record_deletion` deletes records
on demand, `readiness` says when the broker is ready, `samples` has its gauges and debug state, and `threads`
has its threads.

The behaviour of a part belongs in the part's own package.
"""
