"""Measures Tidelog and its peers on this machine: the same work, in one run, in turn.

`python -m bench` (`__main__`) runs the `cases` with the `harness`. A case is measured with Tidelog (`ours`)
and with the systems in `peers`; each has a server and a client, both processes of their own. `clusters` has
failovers and many streams, `alone` the machine and the layers without the rest, `measuring` the
instruments.

The other programs are no comparison with peers: `catchup` (readers of old records), `hostile_input`,
`restart`, `placement`, and with a real Kubernetes API `many_objects` and `operator_times`.

Tidelog imports nothing from here, and no test asserts a time.
"""
