"""The log of one partition: segments in order, with what guards, describes and mends them.

`partition_log` is the log. `write_batch` and `replicated` decide what goes into a write, `unsynced` is
what the next flush must sync, `tail_cache` keeps recent batches in memory. `truncation` and
`healing` are the steps of a cut and of a repair, and `recovery` opens a log after anything but a
clean stop.

What all logs of a data directory share belongs in `directory`.
"""
