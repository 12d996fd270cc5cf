"""The log of one partition: its segments in order, and the parts that guard, describe and mend them.

`partition_log` puts the parts together, and `state` is the state that they share:

- `reader`, `writer`, `flusher`  read batches, write batches, make batches durable
- `start`      the start of the log, and the files below it
- `cutter`     truncation, and a new beginning at another offset; `truncation` has the steps
- `healer`     replaces damaged batches by sound batches; `healing` has the steps
- `guarding`   the append guard of the log
- `damage`     the ranges that are known to be damaged
- `write_batch`, `replicated`  the batches that a leader and a follower write, and those that they refuse
- `unsynced`   the files that the next flush must sync
- `tail_cache` recent batches in memory
- `recovery`   opens a log after a clean stop or a crash; `recovery_scan` reads its tail

State that all logs of a data directory share belongs in `directory`.
"""
