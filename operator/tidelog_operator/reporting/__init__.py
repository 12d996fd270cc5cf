"""What the operator reports about its work and about the objects: statuses, events, metrics, log lines.

What belongs here: the text and the delivery of reports. What does not belong here: decisions. A report
describes what `plan` decided and what `apply` did, and never changes it.

Pure:

- `conditions`      conditions, and the time of their last transition
- `cluster_status`  the status of a Cluster
- `stream_status`   the status of a Stream
- `ingestion_status`  the status of an Ingestion
- `events`          the events of actions and of status changes

With I/O:

- `status_writer`   writes statuses
- `event_writer`    writes events
- `metrics`         Prometheus metrics
- `reports`         sends each result of an action to events, metrics and the log
"""
