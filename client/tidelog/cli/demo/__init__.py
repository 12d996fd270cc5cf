"""`tidelog demo`: NATS messages, three brokers and Spark in one run.

`command` runs its steps: `stream` publishes and tails what `host_metrics` measures, `failover`
kills a broker, and `results` shows what Spark wrote, with a `chart`.
"""
