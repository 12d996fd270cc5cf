"""Load on a cluster from the place of its users: a program, and the pod in which it runs."""
