"""The append guard: makes appends conditional and idempotent (R8, R9, N3). Also append time (F7).

`append_guard` decides, and asks `sink_batches` about the batches of sinks (S1, S2). `snapshots` saves it
beside the segments, and `replay` rebuilds it from the log. `append_time` gives the next batch its time.
"""
