"""The doors of a broker: they turn requests over gRPC and HTTP into calls on `hosting.broker`, and back.

Here belong messages in and out, the limits of a call, and error details. Services
take and return messages and do not know gRPC; only `grpc_door` does, with `status` for errors,
so that another door can stand beside it (DESIGN section 8).
"""
