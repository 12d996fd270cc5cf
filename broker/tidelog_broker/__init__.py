"""The broker: records, replicates and serves the partitions that the cluster places on it.

From the outside in; each package imports only those below it (`make check`):

- `__main__`, `service`, `assembly`, `opening`, `platform`  a process: its start, its parts, its end
- `encryption`, `trust`  the TLS, and the authentication, that the settings ask for
- `identity`       who calls
- `prepare_stop`   the command that a pod runs before it stops
- `config`, `listener_addresses`  the settings
- `api`, `nats`    doors: requests of clients, and messages of NATS
- `hosting`        one running broker: its parts put together, and its partitions
- `offline`        tools for a data directory that no broker has open
- `upkeep`         retention, checkpoints, scrubbing, healing
- `writing`        from a request to a committed record
- `replication`    the roles of a replica, performed, and their connections
- `quorum`         the metadata log: Raft performed, the image, the controller
- `membership`     how a broker finds its cluster, registers and keeps its session
- `metrics`, `limits`  what it shows; what keeps one client from taking all of it
- `storage`        files; `core`: rules without I/O; `peers`: connections between brokers
- `tls`            certificates of brokers, and the names in them
- `clock`, `log_limit`, `model`, `errors`  what all of them share
"""
