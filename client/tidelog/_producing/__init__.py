"""From `send` to a receipt: records become batches, batches are sent, answers settle them.

- `checks`           refuses what no producer can send
- `partitioner`      which partition a record goes to
- `accumulator`      collects records in each partition's open batch and seals it
- `batching`         the open batch, and the encoded one
- `splitting`        Arrow data, cut into batches
- `buffer_budget`    bounds the bytes that are accepted and not acknowledged
- `partition_queue`  the state of one partition: its open batch and its delivery
- `send_window`      what one partition may send, and what an answer means; no I/O
- `sender`           takes sealed batches to the leaders
- `calls`, `stream`  the Produce calls that carry them
- `unfinished`       the batches without a result

The public class is `tidelog.producer.Producer`.
"""
