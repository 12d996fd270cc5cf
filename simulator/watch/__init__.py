"""How a run is seen from outside: `watching` looks at states, `listening` hears what is said.

`replicas` and `mirror` are what they see: a replica, and what its log holds.
"""
