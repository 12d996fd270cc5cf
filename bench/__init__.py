"""Tidelog against its peers on this machine: the same work, in one run, pair by pair.

What belongs here: the harness (`catalog` names the cases, `alternate` measures them,
`report` shows them), `ours` and one package per peer under `peers`, each with a server
that is started as its own process and a client that is one too, and what everything
stands on, measured alone: `layers` and `physical`. `restart` and `catchup` are programs of
their own, because what they find is no race. Nothing here is imported by Tidelog, and no
test asserts a time.
"""
