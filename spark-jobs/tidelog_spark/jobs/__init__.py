"""Jobs that run as programs: ``python -m tidelog_spark.jobs ingest --help``.

What belongs here: a job's configuration, its attempts and what it reports. What does not: how rows become
files, which is in `tidelog_spark.lake`, and the data source, which is in the package above.

- `config`        the keys of a job's configuration, with types (pure)
- `loading`       the configuration from a file and from arguments
- `ingest`        one attempt: a query from streams to a lake
- `dead_letters`  bad records as records of a stream
- `running`       attempts, and the waits between them
- `stopping`      exit codes, and the signals that ask a job to stop
- `moments`       a bad moment, or what only people can mend (pure)
- `reporting`     progress, report and last words
- `host_metrics`  the query of `tidelog demo`
"""
