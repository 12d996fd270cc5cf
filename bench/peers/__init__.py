"""The peers that Tidelog is compared with, one package each: servers, clients and settings.

- `jetstream`: NATS JetStream.
- `kafka`: Apache Kafka.
"""
