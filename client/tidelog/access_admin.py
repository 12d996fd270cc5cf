"""Administration of rules, tokens and quotas (docs/access.md). It extends `admin`, which has the streams."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from tidelog import access_wire
from tidelog._arguments import check_str, wrong_type
from tidelog._connecting.broker_channel import BrokerChannel
from tidelog.admin import Admin
from tidelog.errors import InvalidRequest
from tidelog.model.access import (
    TOKEN_PREFIX,
    TOKEN_SECRET_BYTES,
    AclRule,
    Operation,
    Resource,
    TokenDescription,
    check_token_principal,
)
from tidelog.model.quotas import Quota
from tidelog_proto import access_pb2 as pb


class WhoAmI(NamedTuple):
    """The principal of a client."""

    principal: str
    groups: tuple[str, ...]
    superuser: bool
    authentication: bool
    """False: the cluster asks nobody for credentials, and each client may do everything."""


class AccessDecision(NamedTuple):
    """Whether a principal may do something."""

    allowed: bool
    rule: AclRule | None
    """The rule that decides. None: no rule allows it, or the principal is a superuser."""
    superuser: bool


class NewToken(NamedTuple):
    """A token that was just made. The cluster has only its hash, so it cannot be shown again."""

    token: str
    description: TokenDescription

    def __repr__(self) -> str:
        return f"<NewToken {self.description.token_id} of {self.description.principal}>"


class AccessAdmin(Admin):
    """The part of a client that administers rules, tokens and quotas."""

    async def who_am_i(self) -> WhoAmI:
        """The principal of this client, as the cluster knows it. Raises `Unauthenticated`."""

        async def call(channel: BrokerChannel) -> pb.WhoAmIResponse:
            return await channel.access.WhoAmI(pb.WhoAmIRequest(), timeout=self._options.request_timeout_s)

        answer = await self._call(call, repeat_indefinite=True)
        return WhoAmI(answer.principal, tuple(answer.groups), answer.superuser, answer.authentication)

    async def check_access(
        self,
        operation: Operation | str,
        resource: Resource | str,
        name: str = "",
        *,
        principal: str = "",
        groups: Sequence[str] = (),
    ) -> AccessDecision:
        """Whether `principal` may do `operation` on the stream or group `name`, or on the cluster.

        Without `principal`: whether this client may. Asking for another principal needs `admin` on the
        cluster.
        """
        request = pb.CheckAccessRequest(
            principal=principal,
            groups=groups,
            operation=access_wire.operation_to_proto(_operation(operation)),
            resource=access_wire.resource_to_proto(_resource(resource)),
            name=name,
        )

        async def call(channel: BrokerChannel) -> pb.CheckAccessResponse:
            return await channel.access.CheckAccess(request, timeout=self._options.request_timeout_s)

        answer = await self._call(call, repeat_indefinite=True)
        rule = access_wire.rule_from_proto(answer.rule) if answer.HasField("rule") else None
        return AccessDecision(answer.allowed, rule, answer.superuser)

    async def change_acl(
        self, add: Sequence[AclRule] = (), remove: Sequence[AclRule] = ()
    ) -> tuple[list[AclRule], list[AclRule]]:
        """Adds and removes rules, all of them or none. Returns the rules that were added, and those that were
        removed; a rule that is there already is not added again. May be repeated."""
        for rule in (*add, *remove):
            if not isinstance(rule, AclRule):
                raise wrong_type("rule", rule, "an AclRule")
            rule.check()
        request = pb.ChangeAclRequest(
            add=map(access_wire.rule_to_proto, add), remove=map(access_wire.rule_to_proto, remove)
        )

        async def call(channel: BrokerChannel) -> pb.ChangeAclResponse:
            return await channel.access.ChangeAcl(request, timeout=self._options.request_timeout_s)

        answer = await self._call(call, repeat_indefinite=True)
        return access_wire.rules_from_proto(answer.added), access_wire.rules_from_proto(answer.removed)

    async def list_acl(self, principal: str = "") -> list[AclRule]:
        """All rules, or those for one principal or group."""
        check_str("principal", principal)
        request = pb.ListAclRequest(principal=principal)

        async def call(channel: BrokerChannel) -> pb.ListAclResponse:
            return await channel.access.ListAcl(request, timeout=self._options.request_timeout_s)

        return access_wire.rules_from_proto((await self._call(call, repeat_indefinite=True)).rules)

    async def create_token(
        self, principal: str, *, expires: datetime | None = None, note: str = ""
    ) -> NewToken:
        """Makes a token for a user. `expires`: a datetime with a time zone; None: never.

        The token is made here, and only its hash is sent.
        """
        check_token_principal(principal)
        token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_SECRET_BYTES)
        if expires is not None and expires.tzinfo is None:
            raise InvalidRequest(f"expires is {expires}, without a time zone; give a datetime with one")
        request = pb.CreateTokenRequest(
            hash=hashlib.sha256(token.encode()).digest(),
            principal=principal,
            expires_us=0 if expires is None else int(expires.timestamp() * 1e6),
            note=note,
        )

        async def call(channel: BrokerChannel) -> pb.CreateTokenResponse:
            return await channel.access.CreateToken(request, timeout=self._options.request_timeout_s)

        answer = await self._call(call, repeat_indefinite=True)
        return NewToken(token, access_wire.token_from_proto(answer.token))

    async def delete_token(self, token_id: str) -> TokenDescription:
        """Withdraws a token: calls that run with it end within a second or two."""
        check_str("token_id", token_id)
        request = pb.DeleteTokenRequest(token_id=token_id)

        async def call(channel: BrokerChannel) -> pb.DeleteTokenResponse:
            return await channel.access.DeleteToken(request, timeout=self._options.request_timeout_s)

        return access_wire.token_from_proto((await self._call(call, repeat_indefinite=False)).token)

    async def list_tokens(self, principal: str = "") -> list[TokenDescription]:
        """All tokens, or those of one user, without their secrets."""
        check_str("principal", principal)
        request = pb.ListTokensRequest(principal=principal)

        async def call(channel: BrokerChannel) -> pb.ListTokensResponse:
            return await channel.access.ListTokens(request, timeout=self._options.request_timeout_s)

        answer = await self._call(call, repeat_indefinite=True)
        return [access_wire.token_from_proto(token) for token in answer.tokens]

    async def set_quota(self, quota: Quota) -> None:
        """Says how much a principal may use of each broker, instead of its present quota. May be repeated."""
        if not isinstance(quota, Quota):
            raise wrong_type("quota", quota, "a Quota")
        quota.check()
        request = pb.SetQuotaRequest(quota=access_wire.quota_to_proto(quota))

        async def call(channel: BrokerChannel) -> pb.SetQuotaResponse:
            return await channel.access.SetQuota(request, timeout=self._options.request_timeout_s)

        await self._call(call, repeat_indefinite=True)

    async def delete_quota(self, principal: str) -> None:
        """Takes the quota of a principal away."""
        check_str("principal", principal)
        request = pb.DeleteQuotaRequest(principal=principal)

        async def call(channel: BrokerChannel) -> pb.DeleteQuotaResponse:
            return await channel.access.DeleteQuota(request, timeout=self._options.request_timeout_s)

        await self._call(call, repeat_indefinite=False)

    async def list_quotas(self) -> list[Quota]:
        """All quotas, by principal."""

        async def call(channel: BrokerChannel) -> pb.ListQuotasResponse:
            return await channel.access.ListQuotas(
                pb.ListQuotasRequest(), timeout=self._options.request_timeout_s
            )

        answer = await self._call(call, repeat_indefinite=True)
        return [access_wire.quota_from_proto(quota) for quota in answer.quotas]


def _operation(value: Operation | str) -> Operation:
    try:
        return Operation(value)
    except ValueError:
        raise InvalidRequest(f"{value!r} is not an operation; give one of {', '.join(Operation)}") from None


def _resource(value: Resource | str) -> Resource:
    try:
        return Resource(value)
    except ValueError:
        raise InvalidRequest(f"{value!r} is not a resource; give one of {', '.join(Resource)}") from None
