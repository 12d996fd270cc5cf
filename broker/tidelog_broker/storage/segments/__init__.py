"""One segment: a file of record batches with its index, and how it is read, scanned and scrubbed.

`segment` is the file, `header_walk` goes from batch to batch, `index` and `index_files` are its
sparse index. `reading` returns verified batches by offset and time, `sizes` finds a place by bytes.
`scan` checks every byte and steps over damage, and `scrubbing` does the same in small pieces.

Which records are committed or durable, and which ranges are healed, belongs in `log`.
"""
