"""Consensus on the metadata log: Raft without I/O (DESIGN 6; Ongaro's thesis; after etcd-io/raft).

What belongs here: elections, commitment, membership of the quorum, and when a message may be sent.
What does not: the meaning of the entries (`core.metadata`), files (`storage.raft.log`), streams
between brokers and clocks (`quorum`). Time is ticks, and randomness is a parameter.

The joint
- `node`        `RaftNode`: tick, step, propose, ready, advance; it performs the transitions
- `stepping`    which messages count, and which role handles them
- `transitions` what a node becomes next: follower, candidate or leader

The roles, each over the state and returning transitions
- `following`   a follower or learner
- `campaigning` a candidate: pre-votes, then votes
- `leading`     a leader: replicates, commits, steps down when no majority answers

The state and its parts
- `state`       `RaftState`: term, vote, log, outbox; what all roles share
- `log`         the entries on disk and on their way to it
- `outbox`      the messages that may be sent at once, and those that wait for the disk

The rules
- `voting`      which candidate gets a vote
- `quorum`      counting
- `progress`    how far one peer is
- `sending`     what a leader sends to one peer next
- `reading`     ReadIndex: when a linearizable read may be answered
- `uncommitted` the bound on what a leader accepts
- `changes`     changes of the voters: which, and when
- `history`     whether two logs are of one history (M2)

The values
- `messages`    between nodes
- `ready`       what the driver must do: persist before you speak, as types
- `times`       timeouts, in ticks
- `errors`      why a node refuses a request
"""
