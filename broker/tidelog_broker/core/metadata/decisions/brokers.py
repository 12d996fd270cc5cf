"""The broker that a request names: whether it is registered, and at which version."""

from __future__ import annotations

from tidelog.errors import InvalidRequest, VersionConflict
from tidelog.wording import listed
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage


def registered(image: ClusterImage, broker: int, *, field: str = "broker") -> BrokerImage:
    """Raises `InvalidRequest`, which names the `field` of the request."""
    found = image.brokers.get(broker)
    if found is None:
        raise InvalidRequest(
            f"broker {broker} is not registered; registered brokers: {listed(sorted(image.brokers))}",
            field=field,
        )
    return found


def check_version(broker: BrokerImage, expected: int | None) -> None:
    """Raises `VersionConflict` if an administrator changed the broker since version `expected`."""
    if expected is not None and expected != broker.version:
        raise VersionConflict(
            f"broker {broker.id} is at version {broker.version}, not at {expected}; read it again",
            version=broker.version,
        )
