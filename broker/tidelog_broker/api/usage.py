"""What each principal uses of this broker, against its quota (A10).

Delays come first: a call, a batch or an answer waits until the rate has made up for what was used. A request
that would wait for longer than `DELAY_SECONDS_MAX` is refused with the time after which to try again; a
stream is never refused, because the broker stops to read it, or to send.

Neighbours: `access` has the principal of a call, `limits.rate` counts.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from tidelog.errors import ResourceExhausted
from tidelog.model.access import EVERY_PRINCIPAL
from tidelog.model.quotas import Quota
from tidelog.wording import count_of
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.limits.rate import Rate
from tidelog_broker.metrics import Sample

DELAY_SECONDS_MAX: Final = 2.0
"""A request that would wait longer is refused."""

CALLS_RETRY_MS: Final = 1000

PAUSE_SECONDS_MAX: Final = 0.25
"""A stream that waits looks so often whether its quota or its permissions have changed."""

PRINCIPALS_MAX: Final = 10_000
"""Principals whose use is remembered; the use of the others that have no running call is forgotten."""


class Usage:
    """The use of one principal."""

    def __init__(self, principal: str, quota: Quota | None) -> None:
        self.principal = principal
        self.calls = 0
        """That run now."""
        self.delayed_seconds = 0.0
        """How long its requests have waited, all together."""
        self.refused = 0
        self._set(quota)

    def __repr__(self) -> str:
        return f"<Usage {self.principal} calls={self.calls}>"

    def _set(self, quota: Quota | None) -> None:
        self.quota = quota
        self.produced = Rate(0 if quota is None else quota.produce_bytes_per_second)
        self.fetched = Rate(0 if quota is None else quota.fetch_bytes_per_second)
        self.requests = Rate(0 if quota is None else quota.requests_per_second)

    def follow(self, quota: Quota | None) -> None:
        """The quota may have changed."""
        if quota != self.quota:
            self._set(quota)

    def begin(self) -> None:
        """Counts a call until `end`. Raises `ResourceExhausted`, and then counts nothing."""
        most = 0 if self.quota is None else self.quota.calls_max
        if most and self.calls >= most:
            self.refused += 1
            raise ResourceExhausted(
                f"{self.principal} has {count_of(self.calls, 'call')} on this broker, which is all that its "
                "quota allows (calls_max); end some of them",
                retry_after_ms=CALLS_RETRY_MS,
                limit="calls_max",
            )
        if self is not UNLIMITED:
            self.calls += 1

    def end(self) -> None:
        self.calls -= 1

    async def pace(self, rate: Rate, amount: float, what: str) -> None:
        """Counts `amount` for a single request, and waits as long as its rate wants.

        Raises `ResourceExhausted` if that would take too long, and then counts nothing.
        """
        if not rate.per_second:
            return
        now = asyncio.get_running_loop().time()
        delay = rate.wait(now)
        if delay > DELAY_SECONDS_MAX:
            self.refused += 1
            raise ResourceExhausted(
                f"{self.principal} uses more {what} than its quota allows ({rate.per_second:g} a second); "
                f"try again in {delay:.1f} s",
                retry_after_ms=int(delay * 1000),
                limit=what,
            )
        rate.use(amount, now)
        await self.slept(delay)

    def used(self, rate: Rate, amount: float) -> None:
        """Counts `amount` of a stream, which then must wait (`Rate.wait`)."""
        if rate.per_second:
            rate.use(amount, asyncio.get_running_loop().time())

    async def slept(self, seconds: float) -> None:
        """Waits."""
        if seconds > 0:
            self.delayed_seconds += seconds
            await asyncio.sleep(seconds)


UNLIMITED: Final = Usage("", None)
"""For superusers, brokers, and calls while authentication is off."""


class Usages:
    """The use of all principals that have quotas."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._of: OrderedDict[str, Usage] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Usages of {len(self._of)}>"

    def of(self, principal: str) -> Usage:
        """The use of a principal, with the quota that it has now."""
        found = self._of.get(principal)
        if found is None:
            found = self._of[principal] = Usage(principal, self._quota_of(principal))
            self._forget()
        return found

    def follow(self) -> None:
        """The image has other quotas, which count for running calls, too."""
        for usage in self._of.values():
            usage.follow(self._quota_of(usage.principal))

    def _quota_of(self, principal: str) -> Quota | None:
        quotas = self._image().quotas
        return quotas.get(principal) or quotas.get(EVERY_PRINCIPAL)

    def _forget(self) -> None:
        if len(self._of) <= PRINCIPALS_MAX:
            return
        for principal, usage in list(self._of.items()):
            if not usage.calls:
                del self._of[principal]
                return

    def samples(self) -> Iterator[Sample]:
        """For the principals that have quotas: how they are limited."""
        for usage in list(self._of.values()):
            if usage.quota is None:
                continue
            labels = (("principal", usage.principal),)
            yield (
                "tidelog_quota_delayed_seconds",
                "How long requests of a principal have waited because of its quota, all together.",
                labels,
                usage.delayed_seconds,
            )
            yield (
                "tidelog_quota_refused",
                "Requests of a principal that were refused because of its quota.",
                labels,
                float(usage.refused),
            )
