"""Tidelog streams in Spark: `format("tidelog")`, batch and streaming (DESIGN section 13).

What belongs here: the data source, how it plans and what its tasks do, the jobs' logic,
and finding a Java runtime. What does not: reading records, which is `tidelog.blocking`'s
work; and nothing here knows the broker.

- `source`    the format and the batch reader
- `stream`    the streaming reader
- `options`   what a user may say (pure)
- `offsets`   where a query stands, as its checkpoint holds it (pure)
- `planning`  how much next, by how many tasks (pure)
- `positions` what the options mean in the logs as they are
- `reader`    one range of a partition as Arrow batches: the work of a task
- `cluster`   this process's connections
- `schema`    the rows
- `session`   a Spark session on this machine; `java` the runtime for it
- `parquet`   the job that writes a stream to Parquet
"""

from tidelog_spark.java import ensure_java
from tidelog_spark.session import local_session
from tidelog_spark.source import TidelogDataSource, register

__all__ = ["TidelogDataSource", "ensure_java", "local_session", "register"]
