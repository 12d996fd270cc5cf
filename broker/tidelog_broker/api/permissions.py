"""What each rpc needs: the list that no rpc can be missing from (A4, A8).

`calls` looks up the permission of each rpc when it makes its methods, so a service with an rpc that is not
here does not start. Where a request names many streams, or names them in each of its messages, the service
asks itself: those rpcs are `inside`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.model.access import Operation
from tidelog_broker.api.access import Access

Permission = Callable[[Access, Any], None]
"""Raises `PermissionDenied`, `Unauthenticated` or `StreamNotFound`; its second argument is the request."""


def _cluster(operation: Operation) -> Permission:
    return lambda access, _: access.check_cluster(operation)


def _named(operation: Operation) -> Permission:
    """For the stream whose name the request has."""
    return lambda access, request: access.check_named(request.name, operation)


def _with_id(operation: Operation) -> Permission:
    """For the stream whose id the request has."""
    return lambda access, request: access.check_stream(request.stream_id, operation)


def _somewhere(operation: Operation) -> Permission:
    return lambda access, _: access.check_somewhere(operation)


def _all(access: Access, request: object) -> None:
    """Each principal, also one without any permission."""


def _inside(access: Access, request: object) -> None:
    """The service asks itself."""


_ALTER_CLUSTER: Final = _cluster(Operation.ALTER)
_ADMIN_CLUSTER: Final = _cluster(Operation.ADMIN)

PERMISSIONS: Final[dict[str, dict[str, Permission]]] = {
    "Metadata": {
        # Streams that are hidden are left out.
        "Resolve": _inside,
        "Watch": _inside,
    },
    "Log": {
        "Produce": _inside,
        "Publish": _inside,
        "Fetch": _inside,
        "Offsets": _inside,
        "InitProducer": _somewhere(Operation.PRODUCE),
        "BeginSinkRun": _somewhere(Operation.PRODUCE),
        "OpenSink": _with_id(Operation.PRODUCE),
        "DescribeSink": _with_id(Operation.PRODUCE),
        "CloseSink": _inside,
        "DeleteRecords": _with_id(Operation.ALTER),
    },
    "Admin": {
        # Streams
        "CreateStream": _named(Operation.ADMIN),
        "AlterStream": _named(Operation.ALTER),
        "DeleteStream": _named(Operation.ADMIN),
        "DescribeStream": _named(Operation.DESCRIBE),
        "ListStreams": _inside,
        # The cluster
        "DescribeCluster": _cluster(Operation.DESCRIBE),
        "DescribeReplicas": _cluster(Operation.DESCRIBE),
        "ListReassignments": _cluster(Operation.DESCRIBE),
        "Cordon": _ALTER_CLUSTER,
        "Uncordon": _ALTER_CLUSTER,
        "Drain": _ALTER_CLUSTER,
        "PrepareStop": _ALTER_CLUSTER,
        "CancelStop": _ALTER_CLUSTER,
        "UnregisterBroker": _ALTER_CLUSTER,
        "ElectLeaders": _ALTER_CLUSTER,
        "Reassign": _ALTER_CLUSTER,
        "CancelReassignment": _ALTER_CLUSTER,
        "Throttle": _ALTER_CLUSTER,
        "AddVoter": _ALTER_CLUSTER,
        "RemoveVoter": _ALTER_CLUSTER,
    },
    "Access": {
        "WhoAmI": _all,
        "CheckAccess": _inside,
        "ChangeAcl": _ADMIN_CLUSTER,
        "ListAcl": _ADMIN_CLUSTER,
        "CreateToken": _ADMIN_CLUSTER,
        "DeleteToken": _ADMIN_CLUSTER,
        "ListTokens": _ADMIN_CLUSTER,
        "SetQuota": _ADMIN_CLUSTER,
        "DeleteQuota": _ADMIN_CLUSTER,
        "ListQuotas": _ADMIN_CLUSTER,
    },
}
"""By service and rpc."""
