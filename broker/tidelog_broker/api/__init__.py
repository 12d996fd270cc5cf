"""Doors: requests over gRPC and HTTP, turned into calls on `hosting.broker` and back.

What belongs here: messages in, messages out, limits of a call, error details. Services
are written against messages and know no gRPC; `grpc_door` does, with `status` for errors,
so that another door can stand beside it (DESIGN section 8).
"""
