"""`tidelog verify`: a data directory, the replicas of a running cluster, or the history of a test load.

`replicas` compares replicas, which `replica_reading` reads from each broker; `history` judges a
history.
"""
