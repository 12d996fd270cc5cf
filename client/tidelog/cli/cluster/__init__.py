"""`tidelog cluster`: the brokers of a cluster, and where replicas and leaders are.

`command` has the commands that only look. `brokers` and `moves` have those that change something,
`recover` the recovery of a lost quorum, and `output` what all of them print.
"""
