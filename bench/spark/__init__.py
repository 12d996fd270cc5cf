"""Spark with Tidelog, with Kafka's connector and with Parquet files: the same work in the same session.

Every contender has a Spark session of its own, which stays up for all rounds of a case and has the settings
of `tidelog_spark.local_session`. Only the format and its options differ.

- `rows`: the rows that are read and written; `fill` stores them, a process of its own.
- `session`: the measured Spark session, a process of its own; `client` is its end in the benchmark.
- `works`, `latency`: what the session does on request, `request` what a request says.
- `cost`: the processor time of the JVM, of Spark's Python processes and of the brokers.
- `memory_source`: the limit of a Python data source, without a log.
- `places`: where each contender keeps its rows, and the options of its format.
- `contenders`: the contenders of the cases.
"""
