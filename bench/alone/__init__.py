"""Parts measured alone, each as a case and some also as contenders beside the peers.

- `physical`: the disk, the page cache and the loopback network.
- `layers`: the record format and the storage engine.
- `plain_grpc`: gRPC with plain bytes.
"""
