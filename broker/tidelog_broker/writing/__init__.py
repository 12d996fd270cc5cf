"""From a request to a committed record: append queues, write rounds, flush rounds, answers.

`partition` takes `append_requests` into its `append_queue`, keeps them in `uncommitted` once they
are written, and answers them when they are committed; `refusals` are the answers when that cannot
happen any more, and `partition_host` is what a partition needs of its broker. `write_rounds`
decides when partitions write, `inline_writes` whether on the event loop, and `round_work` is what a
round does. `batching` turns single records, kept as `record_columns`, into one batch per round.
`flush_rounds` makes it durable, and `append_counter` counts the outcomes.

The bytes on disk belong in `storage`, what other replicas do in `replication`.
"""
