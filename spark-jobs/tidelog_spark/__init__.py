"""Tidelog streams in Spark: `format("tidelog")`, batch and streaming (DESIGN section 13).

What belongs here: the data source, its planning, the work of its tasks, the logic of the jobs, and the
search for a Java runtime. What does not: fetching records, which `tidelog.blocking` does, and any code of
the broker.

- `source`    the format and the batch reader
- `stream`    the streaming reader; `trigger_gate` says when a micro-batch begins, `losses` what is lost
- `options`   the options of a read, checked (pure): `points` starts and ends, `pruning` columns and filters,
  `option_values` numbers, durations and JSON, `refused_options` those of the Kafka connector
- `offsets`   the position of a query, as in its checkpoint (pure)
- `planning`  how much to read next, and by how many tasks (pure); `fair_shares` how partitions share a limit
- `byte_limits` the same in bytes
- `positions` the offsets that the options stand for in the logs
- `reader`    reads one range of a partition as Arrow batches: the work of a task
- `sink`      writes the rows of a query, each once; `sink_options` its options, `sink_rows` its rows
- `cluster`   the connections of this process
- `servers`   the addresses of the brokers, and the files for TLS
- `schema`    the columns of the rows
- `payload`   values of a format with a schema, decoded to columns
- `session`   a Spark session on this machine; `java` the runtime for it
- `lake`      micro-batches as files, each row once: Parquet and Iceberg
- `jobs`      jobs that run as programs
- `kubernetes` the driver of an `Ingestion` in its pod
- `failures`  the one useful sentence in an error of Spark
"""

from tidelog_spark.java import ensure_java
from tidelog_spark.session import local_session
from tidelog_spark.source import TidelogDataSource, register

__all__ = ["TidelogDataSource", "ensure_java", "local_session", "register"]
