"""The membership of a broker in its cluster: it finds the controller, registers, and keeps its session.

`formation` finds or forms the cluster of an empty data directory. `session` registers this run and
sends heartbeats, and `failure_reporter` reports other brokers. `controller_client` finds the controller and
sends it requests, over `control_connections`, to the brokers in `addresses`, in the messages of `wire`.
`cluster_clock` is the time that the controller tells.

The controller's handling of requests belongs in `quorum`; the decision which brokers may be members, in
`core.metadata`.
"""
