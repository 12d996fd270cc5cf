"""NATS in: the connection between a NATS server and a broker.

Here belong the client protocol of NATS (parsing, headers, subjects), one connection that
survives its servers, and the acknowledgements JetStream clients wait for. What a message
becomes once it has arrived, and when it is safe to answer, is decided by ``tidelog_broker.writing``;
nothing here knows about logs, offsets on disk or replicas.

- `parser`, `headers`, `subjects`, `jetstream`  pure functions of bytes
- `settings`, `servers`, `errors`, `counters`  what a connection is told, and what it reports
- `transport`      one TCP connection to one server
- `redial`         keeps a server connected
- `session`        the events of all transports of a connection
- `subscription`, `outbox`  interest and unsent bytes, which outlive a transport
- `connection`     all of these together
- `broker_recording`, `recorder`, `recording`  record the streams that have a subject
- `message_facts`  what a message becomes as a record
- `answering`      answers publishers after the commit
"""
