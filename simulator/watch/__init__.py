"""Observes a run from outside, and passes changes to the checks. The product does not know of it.

- `watching`   looks at the state of a broker after each event in its process
- `listening`  reads the messages between brokers, and those between brokers and clients
- `mirror`     the batches of a log, as a chain
- `batches`    reads the log of a replica as a reader gets it

Whether an observation is right is decided in `simulator.checks`.
"""
