"""NATS JetStream, from the server that PyPI brings; clients: nats-py, and Go where it is installed."""
