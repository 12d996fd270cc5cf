"""Tidelog as a contender: brokers as users run them, and clients that use the public library.

- `broker`, `cluster`: one broker, and three as one cluster.
- `contenders`: what Tidelog does for each case.
- `failover`, `many`: failovers, and thousands of streams.
- `client`: the measured client, a process of its own.
- `steady`: a producer at a fixed rate that prints its acknowledgements.
- `catch_up`: a reader of old records at a steady rate.
- `fill`: fills a stream before it is read.
"""
