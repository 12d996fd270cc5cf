"""What is measured on clusters of three servers, the same for Tidelog and its peers.

- `failover`: the gap in acknowledgements when a server fails or stops.
- `steady_load`: the producer that `failover` listens to.
- `many`: the cost of thousands of streams.
"""
