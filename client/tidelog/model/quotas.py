"""Quotas: how much a principal may use of each broker (docs/access.md, A10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.model.access import EVERY_PRINCIPAL, check_rule_principal

BYTES_PER_SECOND_MIN: Final = 1024
"""A smaller rate would let a single record wait for minutes."""

QUOTA_MAX: Final = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a principal may use of each broker. 0: no limit."""

    principal: str
    """A principal, or ``*`` for each principal that has no quota of its own."""
    produce_bytes_per_second: int = 0
    """Of batches, and of the requests of Publish. Bytes per second."""
    fetch_bytes_per_second: int = 0
    """Of answers to Fetch. Bytes per second."""
    requests_per_second: int = 0
    """Calls that begin, and batches of Produce. Per second."""
    calls_max: int = 0
    """Calls that run at a time."""

    def check(self) -> None:
        """Raises `InvalidRequest` unless the quota is as A10 allows."""
        if self.principal.startswith("group:"):
            raise InvalidRequest(
                f"{self.principal!r} is a group; give a principal, or {EVERY_PRINCIPAL!r}", field="principal"
            )
        check_rule_principal(self.principal)
        for name in ("produce_bytes_per_second", "fetch_bytes_per_second"):
            value = getattr(self, name)
            if value and not BYTES_PER_SECOND_MIN <= value <= QUOTA_MAX:
                raise InvalidRequest(
                    f"{name} is {value}; give at least {BYTES_PER_SECOND_MIN}, or 0 for no limit", field=name
                )
        for name in ("requests_per_second", "calls_max"):
            value = getattr(self, name)
            if not 0 <= value <= QUOTA_MAX:
                raise InvalidRequest(f"{name} is {value}; give at least 1, or 0 for no limit", field=name)
        if not any(
            (
                self.produce_bytes_per_second,
                self.fetch_bytes_per_second,
                self.requests_per_second,
                self.calls_max,
            )
        ):
            raise InvalidRequest("the quota limits nothing; give at least one limit, or delete the quota")
