"""Measures Tidelog and its peers on this machine: the same work, in one run, in turn.

`python -m bench` (`__main__`) runs cases. The programs beside it are no comparison with peers.

- `cases`: the list of cases.
- `harness`: how a case is measured and reported.
- `ours`, `peers`: what Tidelog and each peer do for a case, each with servers and clients of its own.
- `clusters`: failovers and many streams, the same for all contenders.
- `spark`: Spark with Tidelog and with its peers.
- `alone`: the machine and the layers of Tidelog without the rest.
- `measuring`: the instruments.
- `catchup`: a program that measures the cost of reading old records.
- `hostile_input`: a program that measures the cost of hostile input.
- `restart`: a program that measures how long a broker takes to be ready again.
- `placement`: a program that measures how well partitions are placed.
- `many_objects`, `operator_times`: programs that measure the operator on a real Kubernetes API.

Tidelog imports nothing from here, and no test asserts a time.
"""
