"""Finds the cluster of a broker with an empty data directory, or forms it, once (M1).

The broker asks the seeds again and again, and joins the cluster of a seed that answers. A cluster
is formed only if a marker, a file outside of every volume, says that it was never formed: by broker
0, with the id in the marker, and only if no seed with data was found in a whole round. The owner of
the marker (on Kubernetes the operator, in a ConfigMap) changes it to `formatted` afterwards. Until that
is read the first voter stays the only one (`until_formatted`): if its volume is lost before, the cluster
is formed again, and no earlier majority may be left that continues beside it.

Neighbours: `offline.formatting` makes the data directory, `control_connections` identifies a seed,
`quorum.active_controller` holds further voters back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
import structlog

from tidelog.model import id_text
from tidelog_broker.errors import BrokerError
from tidelog_broker.membership.addresses import Address
from tidelog_broker.membership.control_connections import identify
from tidelog_broker.peers.errors import PeerError, WrongPeer
from tidelog_broker.peers.hello import Identity
from tidelog_broker.tls.credentials import Credentials

log = structlog.get_logger(__name__)

FIRST_BROKER: Final = 0
"""The only broker that forms a cluster."""

MARKER_BYTES_MAX: Final = 4096
"""A marker is one line; a longer file is something else."""

MARKER_PAUSE_SECONDS: Final = 1.0
"""Between two reads of the marker, once there is a cluster."""


class State(StrEnum):
    """What is known of a cluster outside of its volumes."""

    NEVER_FORMATTED = "never formatted"
    FORMATTED = "formatted"


class Marker(NamedTuple):
    state: State
    cluster_id: bytes


class MarkerInvalid(BrokerError):
    """There is a file where the marker should be, and it cannot be read as one."""


class OtherCluster(BrokerError):
    """The seeds belong to another cluster than the marker names."""


class _Written(msgspec.Struct, rename="camel"):
    """The marker as it stands in its file."""

    state: State
    cluster_id: UUID


def read_marker(path: Path) -> Marker | None:
    """None: there is none. Blocking; raises `MarkerInvalid`."""
    try:
        with path.open("rb") as file:
            data = file.read(MARKER_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MarkerInvalid(
            f"the formation marker {path} cannot be read: {error.strerror or error}. Check the file and "
            f"its permissions"
        ) from None
    right = 'write {"state": "never formatted", "clusterId": "<uuid>"}, or "formatted" once it is'
    if len(data) > MARKER_BYTES_MAX:
        raise MarkerInvalid(
            f"the formation marker {path} is longer than {MARKER_BYTES_MAX} bytes, so it is not a marker; "
            f"{right}"
        )
    try:
        written = msgspec.json.decode(data, type=_Written)
    except (msgspec.DecodeError, ValueError) as error:
        raise MarkerInvalid(f"the formation marker {path} cannot be used ({error}); {right}") from None
    return Marker(written.state, written.cluster_id.bytes)


class Beginning(NamedTuple):
    """What a broker with an empty data directory does: it forms a cluster or joins one."""

    cluster_id: bytes
    forms: bool
    """It forms the cluster; otherwise it joins."""


class Waiting(NamedTuple):
    """The broker can neither join nor form a cluster yet."""

    reason: str
    """A sentence for logs."""


def next_step(broker_id: int, found: bytes | None, marker: Marker | None) -> Beginning | Waiting:
    """The step after a round over the seeds, given the marker as read after it. Raises `OtherCluster`.

    `found`: the cluster of the first seed that has one; None: no seed could be reached that has data.
    """
    if found is not None:
        if marker is not None and marker.cluster_id != found:
            raise OtherCluster(
                f"the seeds belong to cluster {id_text(found)}, but the formation marker names "
                f"{id_text(marker.cluster_id)}; correct the seeds or the marker"
            )
        return Beginning(found, forms=False)
    if broker_id != FIRST_BROKER or marker is None:
        return Waiting("no seed answers yet; this broker asks them again")
    if marker.state is State.FORMATTED:
        return Waiting(
            "the data directory is empty, but the cluster was formed before: this broker forms no other "
            "cluster, and waits for a seed with data"
        )
    return Beginning(marker.cluster_id, forms=True)


async def beginning(
    seeds: Iterable[Address],
    broker_id: int,
    pause_s: float,
    marker: Path | None = None,
    tls: Credentials | None = None,
) -> Beginning:
    """Waits until it is known how a broker with an empty data directory begins.

    `tls`: for connections to the seeds; None: they are not encrypted.

    Raises `WrongPeer` if a seed refuses this broker, `OtherCluster`, and `MarkerInvalid` if the
    marker is invalid at the start; later it is read again, because it may be half written.
    """
    addresses, told = list(seeds), ""
    if marker is not None:
        read_marker(marker)
    while True:
        found = await _ask(addresses, broker_id, tls)
        try:
            step = next_step(broker_id, found, None if marker is None else read_marker(marker))
        except MarkerInvalid as error:
            step = Waiting(str(error))
        if isinstance(step, Beginning):
            return step
        if step.reason != told:
            told = step.reason
            log.warning(step.reason, seeds=addresses)
        await asyncio.sleep(pause_s)


async def _ask(seeds: Iterable[Address], broker_id: int, tls: Credentials | None) -> bytes | None:
    """Asks all seeds once; returns the cluster of the first that has one, or None."""
    for address in seeds:
        try:
            found = await identify(address, lambda: Identity(broker_id), tls)
        except WrongPeer:
            raise
        except PeerError as error:
            log.debug("a seed does not answer", address=address, error=str(error))
        else:
            if found.cluster_id:
                return found.cluster_id
    return None


async def until_formatted(
    marker: Path, cluster_id: bytes, threads: Executor, pause_s: float = MARKER_PAUSE_SECONDS
) -> None:
    """Returns once the marker says that this cluster was formed; it is read in `threads`."""
    loop = asyncio.get_running_loop()
    told = ""
    while True:
        reason = ""
        try:
            found = await loop.run_in_executor(threads, read_marker, marker)
        except MarkerInvalid as error:
            reason = str(error)
        else:
            if found is not None and found.cluster_id != cluster_id:
                reason = f"the formation marker names another cluster, {id_text(found.cluster_id)}"
            elif found is not None and found.state is State.FORMATTED:
                return
        if reason and reason != told:
            log.warning(
                "the formation marker is wrong, so no second broker may vote; correct the file",
                marker=marker,
                reason=reason,
            )
        told = reason
        await asyncio.sleep(pause_s)
