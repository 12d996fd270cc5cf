"""Jobs that run as programs: ``python -m tidelog_spark.jobs ingest --help``.

What belongs here: a job's configuration, its attempts and what it reports. What does not: how rows become
files, which is in `tidelog_spark.lake`, and the data source, which is in the package above.

- `config`        the keys of every job and of `ingest`, with types (pure)
- `loading`       the configuration from a file and from arguments
- `ingest`        one attempt: a query from streams to a lake
- `aggregating`   aggregates of streams as records of a stream (a package)
- `dead_letters`  bad records as records of a stream
- `targets`       checks of the stream to which a job writes
- `sessions`      Spark's session, and the object store
- `staging`       the tasks that make files of rows
- `following`     a query while it runs, with its offsets and its lag
- `running`       attempts, and the waits between them
- `stopping`      exit codes, and the signals that ask a job to stop
- `moments`       a bad moment, or what only people can mend (pure)
- `reporting`     progress, report and last words
- `host_metrics`  the query of `tidelog demo`
"""
