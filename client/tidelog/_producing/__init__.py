"""From `send` to a receipt: records become batches, batches are sent, answers settle them.

`partitioner` chooses the partition, `accumulator` collects its records in `batching`'s open batch,
within the `buffer_budget`; `splitting` cuts Arrow data into batches. `sender` takes sealed batches
to leaders: `send_window` decides for one partition what may be sent and what an answer means,
`calls` and `stream` carry the requests. `unfinished` knows which batches have no result yet.

The public class is `tidelog.producer.Producer`.
"""
