"""NATS in a run: servers and publishers on the simulated network; the recorder is the production broker's.

- `plan`        what of NATS a run has
- `commands`    the client protocol as a server reads it
- `interest`    who wants which subjects
- `server`      a server: routing, limits, slow consumers
- `client`      a client's connection, as the server has it
- `route`       what connects two servers
- `publishers`  who sends records, and what they were told
- `answers`     hears what brokers answer on the wire
- `content`     what stands in the logs against what was sent
- `weather`     servers that end, and links that are cut
- `side`        all of it, as the run has it

Nothing here belongs to the product, and the product knows nothing of it.
"""
