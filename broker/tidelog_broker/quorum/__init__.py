"""The metadata quorum in a broker: it performs Raft, applies committed entries, and acts as the controller.

`opening` opens the metadata log with `options`; `driver` performs Raft on it for a `machine` (`reads` wait
for a ReadIndex, `configuration_history` keeps the voters). `committed_image` is what the committed entries
add up to. `leadership` says whether this broker is the controller, `active_controller` exists while it is,
`changes` proposes with it and `request_handler` answers requests with it; `pending_changes` keeps waiting
callers. `controller` is the interface that the rest of the broker uses, `quorum_controller` implements it,
and `host` is the broker around it. `transport` connects the brokers, `producer_id_blocks` gives out ids,
`leaving` hands
over before a stop, and `run_end` ends a run whose history was given up.

The rules belong in `core.raft` and `core.metadata`; partitions and their records belong elsewhere.
"""
