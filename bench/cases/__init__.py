"""All cases of `python -m bench`.

- `spark`: the cases of Spark.
- `catalog`: the list of all cases.
- `copies`: the cases that exist with one copy of each stream and with three.
- `replicated`: the cases with three brokers.
"""
