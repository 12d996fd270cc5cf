"""From a request to a committed record: append queues, write rounds, flush rounds, answers.

`partition` takes `append_requests` into its `append_queue` and answers them once they are
committed. `write_rounds` decides when partitions write, `inline_writes` whether on the event loop,
and `round_work` is what a round does. `batching` turns single records, kept as `record_columns`,
into one batch per round. `flush_rounds` makes it durable, and `append_counter` counts the outcomes.

The bytes on disk belong in `storage`, what other replicas do in `replication`.
"""
