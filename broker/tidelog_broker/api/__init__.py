"""The doors of a broker: they turn requests over gRPC and HTTP into calls on `hosting.broker`, and back.

Here belong messages in and out, the limits of a call, and error details. Services
take and return messages and do not know gRPC; only `grpc_door` does, with `status` for errors,
so that another door can stand beside it (DESIGN section 8).

- `grpc_door`, `http`  the doors; `admission` bounds the calls that run at a time
- `access_control` says for each call who calls, and what it may do: `access`; `permissions` lists the rpcs;
  `usage` is what the caller uses of its quota
- `admitted`           the begin and the end of a call
- `calls`, `status`    a call and its errors, independent of gRPC
- `log_service`        the `Log` service: `produce`, `publish_records`, `fetch`, `sinks`
- `fetch_start`, `fetch_reading`  where a Fetch begins, how far it has come
- `fetch_plain`, `fetch_projected`, `fetch_leases`  its plain records, its projections, the wait for memory
- `verbatim`, `plain_records`, `protobuf_writing`  records as bytes of messages
- `projected_chunk`, `chunk_batches`  the batches in a chunk, projected or as they are
- `metadata_service`   the `Metadata` service; `described` describes streams
- `access_service`     the `Access` service: rules and tokens
- `admin_service`      the `Admin` service: `admin_streams`, `admin_brokers`, `admin_replicas`, `admin_views`
- `forwarding`         takes requests to the controller
"""
