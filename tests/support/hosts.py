"""Where tests listen: on a loopback address that is this process' alone.

So a server that is killed finds its port free when it starts again. On 127.0.0.1 it may be taken meanwhile:
connections begin there, from any program, and each of them takes a port.
"""

from __future__ import annotations

import os

from tidelog.cli.local import processes as _processes


def _own() -> str:
    number = os.getpid()
    return f"127.{64 + (number >> 14) % 128}.{(number >> 7) % 128}.{1 + number % 128}"


HOST = _own()


def free_ports(count: int) -> list[int]:
    """Of `HOST`."""
    return _processes.free_ports(count, HOST)


def free_port() -> int:
    (port,) = free_ports(1)
    return port
