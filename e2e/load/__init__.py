"""Load on a cluster, from where its users are: a program, and the pod in which it runs."""
