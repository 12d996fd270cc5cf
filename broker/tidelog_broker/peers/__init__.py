"""Connections between brokers: frames, the identity of the other end, and whether it is still there.

Here belong TCP, framing, the greeting on a connection, keepalive, dialing again, and
the evidence of a broken or silent connection (R14). The meaning of the messages does not:
`membership`, `quorum` and `replication` send and receive bytes.

A connection is framed TCP, not gRPC, because it carries every replicated byte and every round trip
of a commit (docs/decisions/0005-framed-tcp-between-brokers.md has the measurement).

- `framing`    bytes to frames and back
- `hello`      the greeting, and which brokers may talk to each other
- `connection` one connection, from its greeting until it breaks
- `listener`   accepts connections; `mixed_server`: with and without TLS at one port
- `dialing`    opens one
- `link`       keeps one open, and reports the evidence when it cannot
- `watch`      decides what is evidence against a broker (R14): pure
- `errors`     why a connection was refused or broke
"""
