"""The log of one partition: segments in order, with what guards, describes and mends them.

`partition_log` puts the parts together, and `state` is what they share:

- `reader`, `writer`, `flusher`  batches out, batches in, batches durable
- `start`      where the log begins, and the files below
- `cutter`     truncation, and beginning again at another offset; `truncation` has the steps
- `healer`     sound batches in the place of damaged ones; `healing` has the steps
- `guarding`   the append guard of the log
- `damage`     what is known to be damaged
- `write_batch`, `replicated`  what a leader and a follower write, and what they refuse
- `unsynced`   what the next flush must sync
- `tail_cache` recent batches in memory
- `recovery`   opens a log after anything but a clean stop; `recovery_scan` reads its tail

What all logs of a data directory share belongs in `directory`.
"""
