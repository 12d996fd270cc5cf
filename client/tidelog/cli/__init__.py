"""The command line: a thin layer over the library, with a package for each group of commands.

What belongs here: options, output, and the processes of `tidelog dev` and `tidelog demo`. What does not:
anything that a program may need too, which is in the library. The broker and the Spark jobs are other
packages. This one knows only their names, and runs them as processes of their own.

- `stream`, `cluster`, `verify`  the commands of these names
- `access`     `acl`, `token`, `quota` and `whoami`
- `records`    `produce`, `consume` and `dump`
- `local`      `dev`, and the processes of a cluster on this machine
- `demo`       `demo`
- `app`        the tree of commands
- `completion` names of streams and brokers for the shell's completion
- `errors`     exit codes and messages
- `shell`      what a shell gives a program: arguments as bytes, open files, signals
- `values`     durations, sizes, times, positions, counts
- `output`, `progress`, `watching`  tables, JSON, and the progress of long work
- `connection` the connection of a command to the cluster
"""

from __future__ import annotations


def main() -> None:
    """The console script ``tidelog``: runs one command and exits with its code."""
    import os
    import signal
    import sys

    # A signal that is ignored (a background job of a script) stays ignored.
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:
        # Nothing has begun yet that must be completed, and an exception could get lost in an import.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))

    from tidelog.without_pandas import leave_pandas_out

    leave_pandas_out()
    # `tidelog demo` starts processes while it talks over gRPC. With fork support, which some environments
    # turn on, gRPC writes a line about its fork handlers each time. It reads this when it is imported.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
    # Otherwise gRPC now and then writes a line about a connection that ended, in a form of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

    from tidelog.cli.shell import run_process

    code = 130
    try:
        if interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run_process(sys.argv[1:])
    except KeyboardInterrupt:
        pass
    if interrupts:
        # The command is over; Python takes a moment to end.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(code))
    sys.exit(code)
