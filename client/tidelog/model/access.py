"""Principals, and the rules that say what they may do (docs/access.md, A1, A4 to A6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.errors import InvalidRequest

ANONYMOUS: Final = "anonymous"
"""The principal of a call without credentials."""

EVERY_PRINCIPAL: Final = "*"
"""In a rule: each principal except `ANONYMOUS`."""

PRINCIPAL_BYTES_MAX: Final = 256

RESOURCE_NAME_BYTES_MAX: Final = 200

TOKEN_PREFIX: Final = "tlt_"
"""Tokens of a cluster begin with it, so that programs that look for lost secrets can find them."""

TOKEN_SECRET_BYTES: Final = 32

TOKEN_NOTE_BYTES_MAX: Final = 256

_SERVICE_ACCOUNT: Final = re.compile(
    r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
)


class Operation(StrEnum):
    """What a rule allows or denies; A5 says what each means."""

    DESCRIBE = "describe"
    PRODUCE = "produce"
    CONSUME = "consume"
    COMMIT = "commit"
    ALTER = "alter"
    ADMIN = "admin"
    ALL = "all"


class Resource(StrEnum):
    """On what."""

    STREAM = "stream"
    GROUP = "group"
    CLUSTER = "cluster"


INCLUDES: Final[Mapping[Resource, Mapping[Operation, frozenset[Operation]]]] = {
    Resource.STREAM: {
        Operation.DESCRIBE: frozenset(),
        Operation.PRODUCE: frozenset({Operation.DESCRIBE}),
        Operation.CONSUME: frozenset({Operation.DESCRIBE}),
        Operation.ALTER: frozenset({Operation.DESCRIBE}),
        Operation.ADMIN: frozenset({Operation.ALTER, Operation.DESCRIBE}),
    },
    Resource.GROUP: {
        Operation.DESCRIBE: frozenset(),
        Operation.COMMIT: frozenset({Operation.DESCRIBE}),
        Operation.ADMIN: frozenset({Operation.COMMIT, Operation.DESCRIBE}),
    },
    Resource.CLUSTER: {
        Operation.DESCRIBE: frozenset(),
        Operation.ALTER: frozenset({Operation.DESCRIBE}),
        Operation.ADMIN: frozenset({Operation.ALTER, Operation.DESCRIBE}),
    },
}
"""The operations of each resource, and those that each includes (A5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """Allows or denies one operation on some resources to one principal or group (A4)."""

    principal: str
    """A principal, a group, or `EVERY_PRINCIPAL`."""
    operation: Operation
    resource: Resource
    name: str = ""
    """Of the stream or group; empty for the cluster."""
    prefix: bool = False
    """`name` is a prefix; the empty prefix stands for all names."""
    deny: bool = False

    def __str__(self) -> str:
        effect = "deny" if self.deny else "allow"
        return f"{effect} {self.principal} {self.operation} {self.resource_text}"

    @property
    def resource_text(self) -> str:
        """The resources in words, with a ``*`` behind a prefix."""
        if self.resource is Resource.CLUSTER:
            return "cluster"
        return f"{self.resource} {self.name}{'*' if self.prefix else ''}"

    @property
    def order(self) -> tuple[str, str, str, bool, str, bool]:
        """Rules are listed in this order."""
        return self.principal, self.resource, self.name, self.prefix, self.operation, self.deny

    def check(self) -> None:
        """Raises `InvalidRequest` unless the rule is as A1, A5 and A6 allow."""
        check_rule_principal(self.principal)
        if self.operation is not Operation.ALL and self.operation not in INCLUDES[self.resource]:
            known = ", ".join([*INCLUDES[self.resource], Operation.ALL])
            raise InvalidRequest(
                f"a {self.resource} has no operation {self.operation}; give one of {known}", field="operation"
            )
        if self.resource is Resource.CLUSTER:
            if self.name or self.prefix:
                raise InvalidRequest("a rule for the cluster has no name", field="name")
            return
        if not self.name and not self.prefix:
            raise InvalidRequest(
                f"the rule names no {self.resource}; give a name, or a prefix such as orders*", field="name"
            )
        if len(self.name.encode()) > RESOURCE_NAME_BYTES_MAX or not _is_plain(self.name):
            raise InvalidRequest(
                f"{self.name[:RESOURCE_NAME_BYTES_MAX]!r} is not the name of a {self.resource}; give at most "
                f"{RESOURCE_NAME_BYTES_MAX} letters, digits, '.', '_' or '-'",
                field="name",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDescription:
    """A token of the cluster, without its secret."""

    token_id: str
    """The first 16 digits of its SHA-256, hexadecimal."""
    principal: str
    created_us: int
    """µs since 1970."""
    expires_us: int = 0
    """µs since 1970; 0: never."""
    note: str = ""


def check_rule_principal(name: str) -> None:
    """Raises `InvalidRequest` unless a rule may be for `name`: a principal, a group, or ``*``."""
    if name not in (ANONYMOUS, EVERY_PRINCIPAL):
        check_principal(name, ("user", "serviceaccount", "oidc", "group"))


def check_token_principal(name: str) -> None:
    """Raises `InvalidRequest` unless a token may be for `name`: it must be a user (A1)."""
    check_principal(name, ("user",))


def check_principal(name: str, kinds: tuple[str, ...]) -> None:
    """Raises `InvalidRequest` unless `name` is a principal of one of these kinds (A1)."""
    kind, colon, rest = name.partition(":")
    shown = name[:PRINCIPAL_BYTES_MAX]
    if not colon or kind not in kinds:
        forms = " or ".join(_FORMS[one] for one in kinds)
        raise InvalidRequest(f"{shown!r} is not a principal; give {forms}", field="principal")
    if len(name.encode("utf-8", "replace")) > PRINCIPAL_BYTES_MAX or not is_principal_name(rest):
        raise InvalidRequest(
            f"{shown!r} is not a principal: a name has 1 to {PRINCIPAL_BYTES_MAX - len(kind) - 1} bytes of "
            "printable text without spaces at its ends",
            field="principal",
        )
    if kind == "serviceaccount" and _SERVICE_ACCOUNT.fullmatch(rest) is None:
        raise InvalidRequest(
            f"{shown!r} is not a principal; give serviceaccount:NAMESPACE/NAME", field="principal"
        )


def is_principal_name(name: str) -> bool:
    """Whether `name` may stand behind the colon of a principal."""
    return bool(name) and name.isprintable() and name == name.strip() and len(name) <= PRINCIPAL_BYTES_MAX


_FORMS: Final = {
    "user": "user:NAME",
    "serviceaccount": "serviceaccount:NAMESPACE/NAME",
    "oidc": "oidc:SUBJECT",
    "group": "group:NAME",
}


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9._-]*", name) is not None
