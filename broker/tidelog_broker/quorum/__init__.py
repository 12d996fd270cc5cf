"""The metadata quorum in a broker: it performs Raft, applies what is committed, and serves as controller.

`opening` opens the metadata log; `driver` performs Raft on it (`reads` are those that wait for a
ReadIndex). `committed_image` is what the committed entries add up to, `pending_changes` the changes
that wait for theirs. `controller` is the interface that the rest of the broker uses,
`quorum_controller` implements it. `active_controller` exists while this broker leads the quorum,
and `request_handler` answers requests with it. `transport` exchanges messages with the other
brokers; `run_end` ends a run whose history was given up.

The rules belong in `core.raft` and `core.metadata`; partitions and their records belong elsewhere.
"""
