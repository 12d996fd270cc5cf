"""How a client reaches the brokers: channels, metadata, retries, and errors as they come over the wire.

- `broker_channel`  the gRPC channel to one broker and the calls on it
- `channels`        one channel for each broker that the client uses
- `tokens`          the token of a client, sent with each call
- `tls`             the files of a client for TLS, checked, and read again when they change
- `listeners`       which of a broker's addresses to use
- `hedging`         one question to several brokers, when any of them can answer it
- `metadata`        streams, partitions and their leaders
- `retry`           when a request is repeated
- `status`          what a gRPC error means
- `framing`         record batches on the wire without protobuf's copies

What is sent or fetched belongs in `_producing` and `_reading`.
"""
