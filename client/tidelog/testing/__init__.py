"""A cluster in memory, for the tests of whoever uses Tidelog: public, and as strict as a real one.

    async with tidelog.testing.cluster() as fake, fake.connect() as log:
        await log.create_stream("orders")
        fake.fail_next("produce", ConnectionLost("cable"), landed=True)
        async with log.producer("orders") as producer:
            await producer.send(b"once")
        assert [record.value for record in fake.records("orders")] == [b"once"]

The client is the real one, down to its connections; behind them there are no sockets, no
files and no broker package. What belongs here: everything that a client can see of a
cluster, and ways to make it go wrong. What does not: NATS, durability, replication itself.

- `_cluster`        what a test sees; `_blocking` the same for `tidelog.blocking`
- `_faults`         what is to go wrong next
- `_connection`     calls without sockets: `_calls` for batches, `_status` for errors
- `_brokers`        a broker, up or down
- `_services`       what it answers, with `_administration`
- `_state`, `_log`  the cluster, and one partition of it
"""

from tidelog.testing._blocking import BlockingFakeCluster, blocking_cluster
from tidelog.testing._cluster import FakeCluster, cluster

__all__ = ["BlockingFakeCluster", "FakeCluster", "blocking_cluster", "cluster"]
