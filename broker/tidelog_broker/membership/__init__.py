"""How a broker belongs to a cluster: it finds the controller, registers, and keeps its session.

`formation` finds or forms the cluster of an empty data directory. `session` registers this run and
sends heartbeats; `controller_client` finds the controller and sends it requests, over the
connections in `links`, in the messages of `wire`. `cluster_clock` is the time that the controller
tells.

What the controller does with a request belongs in `quorum`; who may be a member is decided in
`core.metadata`.
"""
