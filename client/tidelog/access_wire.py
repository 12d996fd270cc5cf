"""Converts rules and tokens to protobuf messages and back. For client and broker alike, like `wire`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.model.access import AclRule, Operation, Resource, TokenDescription
from tidelog.model.quotas import Quota
from tidelog_proto import access_pb2 as pb

_OPERATIONS: Final = {
    pb.ACL_DESCRIBE: Operation.DESCRIBE,
    pb.ACL_PRODUCE: Operation.PRODUCE,
    pb.ACL_CONSUME: Operation.CONSUME,
    pb.ACL_COMMIT: Operation.COMMIT,
    pb.ACL_ALTER: Operation.ALTER,
    pb.ACL_ADMIN: Operation.ADMIN,
    pb.ACL_ALL: Operation.ALL,
}
_OPERATION_NUMBERS: Final = {operation: number for number, operation in _OPERATIONS.items()}

_RESOURCES: Final = {
    pb.ACL_STREAM: Resource.STREAM,
    pb.ACL_GROUP: Resource.GROUP,
    pb.ACL_CLUSTER: Resource.CLUSTER,
}
_RESOURCE_NUMBERS: Final = {resource: number for number, resource in _RESOURCES.items()}


def operation_to_proto(operation: Operation) -> pb.AclOperation.ValueType:
    return _OPERATION_NUMBERS[operation]


def operation_from_proto(number: pb.AclOperation.ValueType) -> Operation:
    """Raises `InvalidRequest`."""
    found = _OPERATIONS.get(number)
    if found is None:
        raise InvalidRequest(
            f"the operation {number} is not known; give one of AclOperation", field="operation"
        )
    return found


def resource_to_proto(resource: Resource) -> pb.AclResource.ValueType:
    return _RESOURCE_NUMBERS[resource]


def resource_from_proto(number: pb.AclResource.ValueType) -> Resource:
    """Raises `InvalidRequest`."""
    found = _RESOURCES.get(number)
    if found is None:
        raise InvalidRequest(f"the resource {number} is not known; give one of AclResource", field="resource")
    return found


def rule_to_proto(rule: AclRule) -> pb.AclRule:
    return pb.AclRule(
        principal=rule.principal,
        operation=_OPERATION_NUMBERS[rule.operation],
        resource=_RESOURCE_NUMBERS[rule.resource],
        name=rule.name,
        prefix=rule.prefix,
        deny=rule.deny,
    )


def rule_from_proto(message: pb.AclRule) -> AclRule:
    """Raises `InvalidRequest`."""
    return AclRule(
        principal=message.principal,
        operation=operation_from_proto(message.operation),
        resource=resource_from_proto(message.resource),
        name=message.name,
        prefix=message.prefix,
        deny=message.deny,
    )


def rules_from_proto(messages: Iterable[pb.AclRule]) -> list[AclRule]:
    """Raises `InvalidRequest`."""
    return [rule_from_proto(message) for message in messages]


def token_to_proto(token: TokenDescription) -> pb.TokenDescription:
    return pb.TokenDescription(
        token_id=token.token_id,
        principal=token.principal,
        created_us=token.created_us,
        expires_us=token.expires_us,
        note=token.note,
    )


def token_from_proto(message: pb.TokenDescription) -> TokenDescription:
    return TokenDescription(
        token_id=message.token_id,
        principal=message.principal,
        created_us=message.created_us,
        expires_us=message.expires_us,
        note=message.note,
    )


def quota_to_proto(quota: Quota) -> pb.Quota:
    return pb.Quota(**asdict(quota))


def quota_from_proto(message: pb.Quota) -> Quota:
    return Quota(**{field.name: getattr(message, field.name) for field in fields(Quota)})
