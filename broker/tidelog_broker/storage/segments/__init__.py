"""One segment: a file of record batches with its index; how it is read, scanned and scrubbed.

`segment` is the file, `header_walk` goes from batch to batch, `index` and `index_files` are its
sparse index. `reading` returns verified batches by offset and time, `scan` checks every byte and
steps over damage, and `scrubbing` does so in small pieces.

A segment does not know what is committed, durable or mended: that belongs in `log`.
"""
