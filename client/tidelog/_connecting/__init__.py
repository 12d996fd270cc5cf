"""How a client reaches the brokers: channels, metadata, retries, and errors as they come over the wire.

`channels` holds one connection to each broker and `listeners` says which of its addresses to use.
`hedging` asks several brokers what any of them can answer. `metadata` knows streams, partitions and
leaders. `retry` says when a request is repeated, `status` what an error of gRPC means, and
`framing` carries record batches without protobuf's copies.

What is sent or fetched belongs in `_producing` and `_reading`.
"""
