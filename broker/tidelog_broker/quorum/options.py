"""The settings that concern the metadata quorum."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog_broker.membership.addresses import Address
from tidelog_broker.quorum.driver import SNAPSHOT_ENTRIES
from tidelog_broker.tls.credentials import Credentials

PENDING_MAX: Final = 10_000
"""Changes that wait for a majority of disks; more are refused (retriable)."""


class QuorumOptions(NamedTuple):
    """The settings that concern the metadata quorum."""

    voters_wanted: int = 3
    seeds: tuple[Address, ...] = ()
    """Peer listeners of other brokers, to begin with."""
    formed: bool = True
    """It is known outside of all volumes that the cluster was formed: the only voter may get company (M1)."""
    snapshot_entries: int = SNAPSHOT_ENTRIES
    pending_max: int = PENDING_MAX
    tls: Credentials | None = None
    """For connections between brokers; None: they are not encrypted."""
