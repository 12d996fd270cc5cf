"""The limits and intervals of a broker's parts, with their defaults.

Neighbours: `config` has the settings that the limits come from, `broker` passes each part its limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_broker.replication.links import CATCH_UP_BYTES_PER_SECOND
from tidelog_broker.upkeep.maintenance import MaintenanceLimits

MAINTENANCE = MaintenanceLimits()


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The limits of one broker: times in seconds, sizes in bytes. `config` explains each setting."""

    produce_timeout: float = 30.0
    maintenance: MaintenanceLimits = MAINTENANCE
    syncfs_dirty_bytes_max: int = 4 << 20
    flush_threads: int = 4
    catch_up_threads: int = 2
    decode_threads: int = 2
    projection_threads: int = 1
    fetch_decoded_bytes_max: int = 256 << 20
    fetch_answer_bytes_max: int = 256 << 20
    message_bytes_max: int = 17 << 20
    validation_threads: int = 2
    catch_up_bytes_per_second: int = CATCH_UP_BYTES_PER_SECOND
    scrub_bytes_per_second: int = 4 << 20
    scrub_interval: float = 86_400.0
