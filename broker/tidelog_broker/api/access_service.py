"""The `Access` service: rules, tokens, quotas, and what a principal may do (docs/access.md).

Only the controller changes them: `forwarding`. What a principal may do, each broker says by the
image that it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

from tidelog import access_wire
from tidelog.errors import InvalidRequest
from tidelog.model.access import (
    ANONYMOUS,
    INCLUDES,
    AclRule,
    Operation,
    Resource,
    check_principal,
)
from tidelog_broker.api.access import ACCESS
from tidelog_broker.api.access_control import AccessControl
from tidelog_broker.api.forwarding import ControllerCall, Forwarding
from tidelog_broker.core.metadata.commands import AddToken, ChangeAcl, RemoveToken
from tidelog_broker.core.metadata.decisions import access as decide
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.permissions import Principals
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_proto import access_pb2 as pb

GROUPS_MAX = 256
"""Groups in one CheckAccess request."""


class AccessService:
    """The rpcs of the service; every method raises `TidelogError`."""

    def __init__(self, broker: Broker, quorum: QuorumController, control: AccessControl) -> None:
        self._broker = broker
        self._quorum = quorum
        self._control = control
        self.forwarding = Forwarding(
            broker,
            quorum,
            [
                ControllerCall("ChangeAcl", pb.ChangeAclRequest, pb.ChangeAclResponse, self._change_acl),
                ControllerCall(
                    "CreateToken", pb.CreateTokenRequest, pb.CreateTokenResponse, self._create_token
                ),
                ControllerCall(
                    "DeleteToken", pb.DeleteTokenRequest, pb.DeleteTokenResponse, self._delete_token
                ),
                ControllerCall("SetQuota", pb.SetQuotaRequest, pb.SetQuotaResponse, self._set_quota),
                ControllerCall(
                    "DeleteQuota", pb.DeleteQuotaRequest, pb.DeleteQuotaResponse, self._delete_quota
                ),
            ],
        )
        """For rpcs that only the controller can serve."""

    # --- at the controller

    async def change_acl(self, request: pb.ChangeAclRequest) -> Message:
        return await self._at_controller("ChangeAcl", request)

    async def create_token(self, request: pb.CreateTokenRequest) -> Message:
        return await self._at_controller("CreateToken", request)

    async def delete_token(self, request: pb.DeleteTokenRequest) -> Message:
        return await self._at_controller("DeleteToken", request)

    async def set_quota(self, request: pb.SetQuotaRequest) -> Message:
        return await self._at_controller("SetQuota", request)

    async def delete_quota(self, request: pb.DeleteQuotaRequest) -> Message:
        return await self._at_controller("DeleteQuota", request)

    async def _at_controller(self, rpc: str, request: Message) -> Message:
        response: Message = await self.forwarding.at_controller(rpc, request)
        return response

    async def _change_acl(self, request: pb.ChangeAclRequest) -> pb.ChangeAclResponse:
        add, remove = (access_wire.rules_from_proto(rules) for rules in (request.add, request.remove))
        change = await self._quorum.change(lambda image: decide.change_acl(image, add, remove))
        response = pb.ChangeAclResponse()
        if isinstance(change.command, ChangeAcl):
            response.added.extend(map(access_wire.rule_to_proto, change.command.added))
            response.removed.extend(map(access_wire.rule_to_proto, change.command.removed))
        return response

    async def _create_token(self, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
        now_us = self._broker.clock.append_us()

        def command(image: ClusterImage) -> AddToken | None:
            return decide.add_token(
                image,
                request.hash,
                principal=request.principal,
                now_us=now_us,
                expires_us=request.expires_us,
                note=request.note,
            )

        change = await self._quorum.change(command)
        token = change.image.tokens[request.hash]
        return pb.CreateTokenResponse(token=access_wire.token_to_proto(token.describe()))

    async def _delete_token(self, request: pb.DeleteTokenRequest) -> pb.DeleteTokenResponse:
        before = self._quorum.image

        def command(image: ClusterImage) -> RemoveToken:
            nonlocal before
            before = image
            return decide.remove_token(image, request.token_id)

        await self._quorum.change(command)
        token = decide.token_with(before, request.token_id)
        return pb.DeleteTokenResponse(token=access_wire.token_to_proto(token.describe()))

    async def _set_quota(self, request: pb.SetQuotaRequest) -> pb.SetQuotaResponse:
        quota = access_wire.quota_from_proto(request.quota)
        await self._quorum.change(lambda image: decide.set_quota(image, quota))
        return pb.SetQuotaResponse()

    async def _delete_quota(self, request: pb.DeleteQuotaRequest) -> pb.DeleteQuotaResponse:
        await self._quorum.change(lambda image: decide.remove_quota(image, request.principal))
        return pb.DeleteQuotaResponse()

    # --- here

    async def who_am_i(self, request: pb.WhoAmIRequest) -> pb.WhoAmIResponse:
        access = ACCESS.get()
        return pb.WhoAmIResponse(
            principal=access.identity.principal,
            groups=access.identity.groups,
            superuser=access.superuser,
            authentication=self._control.authentication.required,
        )

    async def check_access(self, request: pb.CheckAccessRequest) -> pb.CheckAccessResponse:
        access = ACCESS.get()
        principals = access.identity.principals
        if request.principal:
            principals = _principals(request.principal, request.groups)
            if principals != access.identity.principals:
                access.check_cluster(Operation.ADMIN)
        operation = access_wire.operation_from_proto(request.operation)
        resource = access_wire.resource_from_proto(request.resource)
        if operation not in INCLUDES[resource]:
            raise InvalidRequest(
                f"a {resource} has no operation {operation}; give one of {', '.join(INCLUDES[resource])}",
                field="operation",
            )
        if (resource is Resource.CLUSTER) == bool(request.name):
            raise InvalidRequest(
                "give a name for a stream or a group, and none for the cluster", field="name"
            )
        if self._control.authorization.is_superuser(principals):
            return pb.CheckAccessResponse(allowed=True, superuser=True)
        decision = self._control.authorization.decide(principals, operation, resource, request.name)
        return pb.CheckAccessResponse(
            allowed=decision.allowed,
            rule=None if decision.rule is None else access_wire.rule_to_proto(decision.rule),
        )

    async def list_acl(self, request: pb.ListAclRequest) -> pb.ListAclResponse:
        rules: Iterable[AclRule] = self._quorum.image.acl
        if request.principal:
            rules = (rule for rule in rules if rule.principal == request.principal)
        return pb.ListAclResponse(rules=map(access_wire.rule_to_proto, rules))

    async def list_quotas(self, request: pb.ListQuotasRequest) -> pb.ListQuotasResponse:
        quotas = sorted(self._quorum.image.quotas.values(), key=lambda quota: quota.principal)
        return pb.ListQuotasResponse(quotas=map(access_wire.quota_to_proto, quotas))

    async def list_tokens(self, request: pb.ListTokensRequest) -> pb.ListTokensResponse:
        tokens = sorted(
            (token.describe() for token in self._quorum.image.tokens.values()),
            key=lambda token: (token.principal, token.created_us, token.token_id),
        )
        return pb.ListTokensResponse(
            tokens=[
                access_wire.token_to_proto(token)
                for token in tokens
                if request.principal in ("", token.principal)
            ]
        )


def _principals(principal: str, groups: Iterable[str]) -> Principals:
    """Those of another principal, checked. Raises `InvalidRequest`."""
    given = tuple(groups)
    if len(given) > GROUPS_MAX:
        raise InvalidRequest(f"the request has {len(given)} groups; give at most {GROUPS_MAX}")
    for group in given:
        check_principal(group, ("group",))
    if principal != ANONYMOUS:
        check_principal(principal, ("user", "serviceaccount", "oidc", "group"))
    return principal, *given
