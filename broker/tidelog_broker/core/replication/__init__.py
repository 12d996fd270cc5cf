"""The rules of replication (DESIGN section 5), each a small module named after what it decides.

What belongs here: how the replicas of a partition stay equal, and what readers may see;
the two roles that apply the rules. What does not: logs on disk (`storage`, seen here
through `log_view`), streams between brokers, the image, and the performing of effects.

The roles: events in, effects out
- `leading`        a leader; its state is `leader_state`, with one `follower_state` for each follower
- `following`      a follower
- `effects`        what a role asks its broker to do

A leader's rules over its state
- `commits`        R3, R5: moves the high watermark
- `fetches`        R1, R2: answers positions
- `isr_changes`    R4: proposes another ISR
- `log_starts`     R11: the log start offset

The rules alone
- `reconciliation` R1: where two logs diverge
- `high_watermark` R3: what is committed
- `commit_queue`   R3: appends that wait for the high watermark
- `membership`     R4: which followers may join the ISR, which leave it, which are held
- `proposals`      R4: ISR changes that are undecided
- `unclean_epochs` R6: which history entry marks an unclean election
- `healing`        2c: which brokers have the batches of a damaged range
- `positions`      R13: whether a reader's position agrees with the log's history

The values
- `messages`       between a leader and its followers
- `log_view`       the part of a log that the rules read
- `times`          times and bounds
"""
