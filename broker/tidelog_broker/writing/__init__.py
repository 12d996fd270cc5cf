"""From a request to a committed record: append queues, write rounds, flush rounds, answers.

`partition` queues appends (`append_requests`) in its `append_queue`. Written appends wait in
`uncommitted`, and `partition` answers them when they are committed. `refusals` has the errors for
appends that can no longer be committed. `partition_host` is the interface of the broker that a
partition calls. `write_rounds` decides when partitions write, `inline_writes` decides whether the
event loop writes, and `round_work` does the work of a round. `batching` turns single records, kept
as `record_columns`, into one batch per round. `flush_rounds` makes the bytes durable, and
`append_counter` counts the outcomes.

Code for the bytes on disk belongs in `storage`, code for other replicas in `replication`.
"""
