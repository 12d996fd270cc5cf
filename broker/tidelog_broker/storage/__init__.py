"""The log on disk: segments, indexes, recovery, flushing, checkpoints (DESIGN section 4).

Blocking code without asyncio: the packages above decide which thread runs it. What belongs here:
everything that reads or writes files below the data directory, and what follows from the log alone
(append guard, leader epochs). Leadership, permissions of readers and the network do not belong here.

- `directory`  a data directory, and all its logs
- `raft`       the metadata log
- `log`        one partition's log
- `folder`     what lies beside its segments: identity, history, marks
- `guard`      what makes an append conditional or idempotent
- `segments`   one file of batches, with its index
- `files`      the door to the file system
- `points`     places in a log that are saved
"""
