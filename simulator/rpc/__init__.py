"""Messages where gRPC would stand: `doors` of brokers, `channels` of clients, `framing` between them."""
