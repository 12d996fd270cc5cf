"""The rules of replication (DESIGN section 5), each a small module named after what it decides.

What belongs here: what a partition's copies owe each other and what readers may see;
the two state machines that keep to it. What does not: logs on disk (`storage`, seen here
through `log_view`), streams between brokers, the image, and who performs the effects.

- `reconciliation` R1: where two logs part
- `high_watermark` R3: what is committed
- `membership`     R4: who may join the ISR, who leaves it, for whom the high watermark waits
- `proposals`      R4: changes of the ISR of which nobody knows yet whether they happened
- `commit_queue`   R3: appends that wait for the high watermark
- `unclean_epochs` R6: what a new leader's history has to say of an unclean election
- `healing`        2c: who has what another replica lost to rot
- `positions`      R13: whether a reader's position fits the log's history
- `progress`       what a leader knows of one follower
- `leading` (its state: `leadership`), `following`: the two ends of a partition; events in, `effects` out
- `messages`       what they say to each other; `times`, the bounds
"""
