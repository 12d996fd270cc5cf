"""Consensus on the metadata log: Raft without I/O (DESIGN 6; Ongaro's thesis; after etcd-io/raft).

What belongs here: who leads, what is committed, who votes, what a voter may say and when.
What does not: what the entries mean (`core.metadata`), files (`storage.raft.log`), streams
between brokers and clocks (`quorum`). Time is ticks, chance is a parameter.

- `node`        `RaftNode`: tick, step, propose, ready, advance; what all roles share
- `stepping`    what a message does: whose word counts, and which role it is for
- `following`   a follower or learner
- `campaigning` who asks for votes, after asking whether it would get them
- `leading`     a leader: replicates, commits, steps down when it cannot know
- `voting`      who gets a vote
- `sending`     what a leader sends to one peer next
- `reading`     ReadIndex: when a question may be answered
- `progress`    how far one peer has come
- `quorum`      counting
- `uncommitted` the bound on what a leader takes on
- `changes`     who may vote next, and when
- `log`         the entries, on disk and on their way there
- `messages`    what nodes say to each other
- `outbox`      what may be said at once, and what only after the disk has it
- `ready`       what is to be done: persist before you speak, as types
- `times`       how long a node waits, in ticks
- `errors`      why a node does not do what it was asked for
"""
