"""Jobs that are run as programs: ``python -m tidelog_spark.jobs.<name> --help``.

What belongs here: a command line around a query. What does not: anything that another
job could want, which is in the package above.
"""
