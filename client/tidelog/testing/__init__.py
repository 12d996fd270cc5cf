"""A cluster in memory for the tests of applications that use Tidelog; as strict as a real cluster.

    async with tidelog.testing.cluster() as fake, fake.connect() as log:
        await log.create_stream("orders")
        fake.fail_next("produce", ConnectionLost("cable"), landed=True)
        async with log.producer("orders") as producer:
            await producer.send(b"once")
        assert [record.value for record in fake.records("orders")] == [b"once"]

The client is the real one; only its connections are replaced. There are no sockets, no files and no broker
package. What belongs here: everything that a client can see of a cluster, and ways to make it fail. What
does not: NATS, durability, and replication.

- `_cluster`        the interface for tests; `_blocking` the same for `tidelog.blocking`
- `_faults`         the planned failures
- `_connection`     the fake connection: `_calls` for batches, `_status` for errors
- `_brokers`        a broker, running or stopped
- `_services`       its answers, with `_administration`
- `_state`, `_log`  the cluster, and one partition of it
"""

from tidelog.testing._blocking import BlockingFakeCluster, blocking_cluster
from tidelog.testing._cluster import FakeCluster, cluster

__all__ = ["BlockingFakeCluster", "FakeCluster", "blocking_cluster", "cluster"]
