"""``python -m chaos.broker``: a broker whose disk is slow or full, as lines on standard input say.

The broker is the one that users run, with another `Files` (`disk`). A planted bug (`planted`) changes the
broker itself; then the checks of the run must find the bug.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from pathlib import Path

from chaos.disk import DiskState, FaultyFiles
from tidelog.large_blocks import keep_large_blocks
from tidelog.without_pandas import leave_pandas_out
from tidelog_broker.__main__ import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    configure_logging,
    poll_in_place,
)
from tidelog_broker.config.loading import load
from tidelog_broker.config.settings import Settings
from tidelog_broker.errors import BrokerError, DirectoryDamaged


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.broker", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the broker's settings, as YAML")
    parser.add_argument("--plant", default="", help="name of the bug to plant")
    asked = parser.parse_args()
    settings = load(asked.config)
    poll_in_place()
    leave_pandas_out()
    import uvloop

    from chaos.planted import planted

    configure_logging(settings)
    keep_large_blocks()
    state = DiskState()
    # When the pipe is closed the lines end, and the disk stays as it is.
    threading.Thread(target=_obey, args=(state,), daemon=True).start()
    with planted(asked.plant):
        try:
            return uvloop.run(_serve(settings, state))
        except BrokerError as error:
            # The exit codes of `tidelog-broker run`.
            sys.stderr.write(f"chaos.broker: {error}\n")
            return EXIT_DAMAGED if isinstance(error, DirectoryDamaged) else EXIT_FAILED


def _obey(state: DiskState) -> None:
    for line in sys.stdin:
        state.told(line)


async def _serve(settings: Settings, state: DiskState) -> int:
    from tidelog_broker.platform import this_machine
    from tidelog_broker.service import Service, run_until

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await run_until(Service(settings, this_machine(FaultyFiles(state))), stop)


if __name__ == "__main__":
    sys.exit(main())
