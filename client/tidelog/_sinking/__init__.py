"""What a sink does: it writes each of its batches exactly once, also if the batch is written again (S1–S4).

- `cutting`  cuts the rows of a task into the same record batches in every attempt
- `attempt`  one attempt of a task: skips what is in the log, and writes the rest
- `calls`    the requests about runs, batches, and what is in the log

The public class is `tidelog.sink.Sink`.
"""
