"""NATS in: the connection between a NATS server and a broker.

Here belong the client protocol of NATS (parsing, headers, subjects), one connection that
survives its servers, and the acknowledgements JetStream clients wait for. What a message
becomes once it has arrived, and when it is safe to answer, is decided by ``tidelog_broker.writing``;
nothing here knows about logs, offsets on disk or replicas.

``parser``, ``headers``, ``subjects`` and ``jetstream`` are pure functions of bytes;
the modules between ``transport`` and ``connection`` are the connection; ``recorder`` joins it to the broker.
"""
