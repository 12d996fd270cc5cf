"""`tidelog cluster`: the brokers of a cluster, and where replicas and leaders are.

`command` has the commands that change nothing. `brokers` has the commands for one broker, `moves` those for
replicas and leaders, and `recover` the recovery of a lost quorum. `output` has what all of them print, and
`unknown_brokers` the exit code for a broker that is not registered.
"""
