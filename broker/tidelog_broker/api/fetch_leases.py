"""Waits for memory to decode in, while the client of a Fetch call gets heartbeats.

Neighbours: `fetch_plain` and `fetch_projected` decode, `limits.byte_budget` has the memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from math import inf
from time import monotonic
from typing import Protocol

from tidelog.errors import BatchTooLarge
from tidelog_broker.limits.byte_budget import ByteBudget, Lease
from tidelog_proto import log_pb2


class Heartbeats(Protocol):
    """A call whose client expects heartbeats."""

    def seconds_until_heartbeat(self) -> float: ...

    def heartbeats(self) -> Iterable[log_pb2.FetchResponse]:
        """Those that are due."""


async def granted(
    lease: Lease, call: Heartbeats, seconds_max: float = inf
) -> AsyncGenerator[log_pb2.FetchResponse]:
    """Waits for the turn of a lease, for some seconds at most, with heartbeats. Afterwards the lease may
    be over."""
    deadline = monotonic() + seconds_max
    while True:
        left = deadline - monotonic()
        if await lease.granted(min(left, call.seconds_until_heartbeat())) or left <= 0:
            return
        # A client that does not take its heartbeat must not hold anything meanwhile.
        lease.idle(_nothing)
        for response in call.heartbeats():
            yield response
        if not lease.busy():
            return


def check_fits(budget: ByteBudget, size: int, what: str) -> None:
    """Raises `BatchTooLarge` for what never fits into the memory for decoding."""
    if not budget.fits(size):
        raise BatchTooLarge(
            f"{what}, and this broker has {budget.bytes_max} for that; read it in the format VERBATIM, or "
            f"raise fetch_decoded_bytes_max",
            bytes_needed=size,
            bytes_max=budget.bytes_max,
        )


def _nothing() -> None:
    """What a lease without content drops."""
