"""Aggregates of streams as records of a stream: ``python -m tidelog_spark.jobs aggregate --help``.

What belongs here: groups, event-time windows and what makes their results count once. What does not: what
every job has, which is in the package above.

- `config`      the keys of the job (pure)
- `query`       from the records of the source to results, as rows of the sink
- `definition`  what a checkpoint has counted, so that a changed job does not go on with it
- `results`     the results of a micro-batch: decided once, then sent
- `attempt`     one attempt: a query from streams to a stream
"""
