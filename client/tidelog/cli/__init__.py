"""The command line: a thin skin over the library, one file per noun.

What belongs here: options, output, processes started by hand (`tidelog dev`, `tidelog
demo`). What does not: anything a program may want too, which is in the library. The
broker and the Spark jobs are other packages, known here by name only and run as
processes of their own.

- `stream` `produce` `consume` `cluster` `dump` `verify` `dev` `demo`  the commands
- `_app`        the tree of commands, and what becomes of errors
- `_shell`      what a shell hands a program: arguments as bytes, open files, signals
- `_values`     durations, sizes, moments, positions, as people write them
- `_output`     tables and JSON
- `_processes`  child processes that never outlive us
- `_nats_server` where the nats-server program is, also for tests and benchmarks
"""

from __future__ import annotations


def main() -> None:
    """The console script ``tidelog``: runs one command and exits with its code."""
    import os
    import sys

    from tidelog.without_pandas import leave_pandas_out

    leave_pandas_out()
    # Commands start processes while they talk over gRPC, which says of each that it is not ready for forks.
    # It reads this when it is imported.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    try:
        from tidelog.cli._shell import run_process
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run_process(sys.argv[1:]))
