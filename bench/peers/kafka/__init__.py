"""Apache Kafka from Maven, driven by its own Java tools, a Java class of ours, and Python producers.

- `server`, `cluster`: one node, and three as one cluster.
- `contenders`, `consuming`: what Kafka does for each case; `consuming` has the readers.
- `failover`, `many`: failovers, and many topics.
- `connector`: Spark's Kafka connector, its jars and options.
- `client`: the Python producers, a process of their own.
"""
