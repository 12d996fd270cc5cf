"""`tidelog verify`: checks a data directory, the replicas of a running cluster, or a test load's history.

`command` has the command. `replicas` compares replicas, which `replica_reading` reads from each broker.
`history` judges a history.
"""
