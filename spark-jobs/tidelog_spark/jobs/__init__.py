"""Jobs that run as programs: ``python -m tidelog_spark.jobs.<name> --help``.

What belongs here: a command line for a query. What does not: code that another job could use; it is in the
package above.

- `host_metrics`  the query of `tidelog demo`
"""
