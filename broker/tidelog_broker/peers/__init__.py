"""Streams between brokers: connections, frames, who is at the other end, and whether it is still there.

What belongs here: TCP, framing, the first words of a connection, keepalive, dialing again, and
what a broken or silent connection proves (R14). What does not: what the messages mean.
`membership`, `quorum` and `replication` give a connection bytes and get bytes.

A stream is framed TCP, not gRPC, because it carries every replicated byte and every round trip
of a commit (docs/decisions/0005-framed-tcp-between-brokers.md has the measurement).

- `framing`    bytes to frames and back
- `hello`      the first words, and who may talk to whom
- `connection` one stream, from its first words until it breaks
- `listener`   takes connections
- `dialing`    opens one
- `link`       keeps one open, and says what it means when it cannot
- `watch`      what of that is evidence against a broker (R14): pure
"""
