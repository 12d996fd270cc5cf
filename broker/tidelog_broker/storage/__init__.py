"""The log on disk: segments, indexes, recovery, flushing, checkpoints (DESIGN section 4).

Blocking code without asyncio: `runtime` decides which thread runs it. What belongs
here: everything that reads or writes files below the data directory, and what is
derived from the log alone (append guard, leader epochs). What does not: who leads, who
may read, network.
"""
