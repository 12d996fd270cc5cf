"""A broker that is not registered is "not found" on the command line, as an unknown stream is.

The cluster itself answers `InvalidRequest`, as for any number that it cannot use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

import tidelog
from tidelog.cli.errors import CommandError, Exit
from tidelog.errors import InvalidRequest
from tidelog.model import ClusterDescription
from tidelog.wording import listed

T = TypeVar("T")


async def of_brokers(client: tidelog.Client, brokers: Sequence[int], work: Awaitable[T]) -> T:
    """The result of `work` on these brokers; if it is refused since one of them is unknown, `NOT_FOUND`."""
    try:
        return await work
    except InvalidRequest:
        cluster = await client.describe_cluster()
        known = [broker.broker_id for broker in cluster.brokers]
        for broker in brokers:
            if broker not in known:
                raise not_registered(broker, cluster) from None
        raise


def not_registered(broker: int, cluster: ClusterDescription) -> CommandError:
    """The error for a broker that the cluster does not know."""
    known = listed(one.broker_id for one in cluster.brokers)
    return CommandError(f"broker {broker} is not registered; there are: {known}", Exit.NOT_FOUND)
