"""RPC between clients and simulated brokers, with messages over simulated connections instead of gRPC.

- `channels`  the client's end, as the client library uses it
- `server`    the broker's end, for the production services
- `framing`   the frames between the two

Connections belong to `simulator.kernel`, services to the product.
"""
