"""NATS in a run: servers and publishers on the simulated network. The recorder is the production broker's.

- `plan`        the NATS part of a plan
- `commands`    the client protocol as a server reads it
- `interest`    subjects, patterns, and subscriptions
- `router`      which connections get a message
- `client`      the server's connection to a client: limits, slow consumers
- `route`       the connection between two servers
- `server`      a server, and the machine on which it runs
- `publishers`  publishers, and the answers that they get
- `answers`     reads the brokers' answers from the connection, for the checks
- `content`     compares the logs with the messages that were sent
- `faults`      servers that end, and cuts
- `deployment`  all servers and publishers of a run

Nothing here belongs to the product, and the product does not know of it.
"""
