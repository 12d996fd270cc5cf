"""Changes of rules, tokens and quotas: a request becomes a command or a typed error (A1, A4, A10).

Pure, like `streams`. `None` instead of a command means that the image already is as requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.errors import InvalidRequest, ResourceExhausted, Unavailable
from tidelog.model.access import TOKEN_NOTE_BYTES_MAX, AclRule, check_token_principal
from tidelog.model.quotas import Quota
from tidelog_broker.core.metadata.commands import AddToken, ChangeAcl, RemoveQuota, RemoveToken, SetQuota
from tidelog_broker.core.metadata.feature_levels import ACCESS
from tidelog_broker.core.metadata.image import ClusterImage, TokenImage

RULES_MAX: Final = 10_000
"""Rules of one cluster."""

RULES_OF_ONE_CHANGE_MAX: Final = 1_000

TOKENS_MAX: Final = 10_000
"""Tokens of one cluster."""

QUOTAS_MAX: Final = 10_000
"""Quotas of one cluster."""

HASH_BYTES: Final = 32
"""Of SHA-256."""


def change_acl(image: ClusterImage, add: Sequence[AclRule], remove: Sequence[AclRule]) -> ChangeAcl | None:
    """Adds and removes rules in one step. Raises `InvalidRequest`, `ResourceExhausted`, or `Unavailable`
    during an upgrade."""
    _check_level(image)
    if len(add) + len(remove) > RULES_OF_ONE_CHANGE_MAX:
        raise InvalidRequest(
            f"the request adds and removes {len(add) + len(remove)} rules; give at most "
            f"{RULES_OF_ONE_CHANGE_MAX} at a time"
        )
    for rule in add:
        rule.check()
    present = dict.fromkeys(image.acl)
    both = [rule for rule in dict.fromkeys(add) if rule in dict.fromkeys(remove)]
    if both:
        raise InvalidRequest(f"the request adds and removes the same rule: {both[0]}")
    added = tuple(rule for rule in dict.fromkeys(add) if rule not in present)
    removed = tuple(rule for rule in dict.fromkeys(remove) if rule in present)
    count = len(present) + len(added) - len(removed)
    if added and count > RULES_MAX:
        raise ResourceExhausted(
            f"the cluster would have {count} rules, and {RULES_MAX} are allowed; use groups or prefixes"
        )
    return ChangeAcl(added, removed) if added or removed else None


def add_token(
    image: ClusterImage,
    token_hash: bytes,
    *,
    principal: str,
    now_us: int,
    expires_us: int = 0,
    note: str = "",
) -> AddToken | None:
    """A new token of a user. Raises `InvalidRequest`, `ResourceExhausted`, or `Unavailable` during an
    upgrade."""
    _check_level(image)
    check_token_principal(principal)
    if len(token_hash) != HASH_BYTES:
        raise InvalidRequest(
            f"the hash of the token has {len(token_hash)} bytes; give the {HASH_BYTES} bytes of its SHA-256",
            field="hash",
        )
    if expires_us and expires_us <= now_us:
        raise InvalidRequest("the token would expire in the past; give a later time", field="expires_us")
    if len(note.encode()) > TOKEN_NOTE_BYTES_MAX or (note and not note.isprintable()):
        raise InvalidRequest(
            f"the note of a token has at most {TOKEN_NOTE_BYTES_MAX} bytes of printable text", field="note"
        )
    present = image.tokens.find(token_hash)
    if present is not None:
        if (present.principal, present.expires_us, present.note) != (principal, expires_us, note):
            raise InvalidRequest("a token with this hash exists already; make another token", field="hash")
        return None
    if len(image.tokens) >= TOKENS_MAX:
        raise ResourceExhausted(f"the cluster has {TOKENS_MAX} tokens, the most allowed; delete some of them")
    return AddToken(token_hash, principal, now_us, expires_us, note)


def remove_token(image: ClusterImage, token_id: str) -> RemoveToken:
    """Withdraws the token with this id. Raises `InvalidRequest`."""
    return RemoveToken(token_with(image, token_id).hash)


def token_with(image: ClusterImage, token_id: str) -> TokenImage:
    """The token with this id. Raises `InvalidRequest`."""
    for token in image.tokens.values():
        if token.id == token_id:
            return token
    raise InvalidRequest(
        f"there is no token with id {token_id[:32]!r}; `tidelog token list` shows those that exist",
        field="token_id",
    )


def set_quota(image: ClusterImage, quota: Quota) -> SetQuota | None:
    """Gives a principal a quota, in place of the one that it may have.

    Raises `InvalidRequest`, `ResourceExhausted`, or `Unavailable` during an upgrade.
    """
    _check_level(image)
    quota.check()
    if image.quotas.get(quota.principal) == quota:
        return None
    if quota.principal not in image.quotas and len(image.quotas) >= QUOTAS_MAX:
        raise ResourceExhausted(
            f"the cluster has {QUOTAS_MAX} quotas, the most allowed; delete some, or give '*' a quota"
        )
    return SetQuota(quota)


def remove_quota(image: ClusterImage, principal: str) -> RemoveQuota:
    """Takes a quota away. Raises `InvalidRequest` if there is none."""
    if principal not in image.quotas:
        raise InvalidRequest(
            f"{principal[:200]!r} has no quota; `tidelog quota list` shows those that exist",
            field="principal",
        )
    return RemoveQuota(principal)


def _check_level(image: ClusterImage) -> None:
    if image.feature_level < ACCESS:
        raise Unavailable(
            "a broker of this cluster runs a version without rules and tokens; update all brokers first",
            retry_after_ms=5000,
        )
