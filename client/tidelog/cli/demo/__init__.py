"""`tidelog demo`: NATS messages, three brokers and Spark in one run.

`command` runs the steps. `stream` publishes the measurements of `host_metrics` and reads them back,
`failover` kills a broker, and `results` shows what Spark wrote, with a `chart`.
"""
