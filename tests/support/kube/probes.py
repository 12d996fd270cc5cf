"""The probes of a container: whether it has started, is ready, is alive; asked over HTTP."""

from __future__ import annotations

import math
from dataclasses import dataclass

import aiohttp

from support.kube.api import AWAY, Json


@dataclass
class Probe:
    """A success counts at once, a failure when it has lasted as long as the manifest allows."""

    patience_seconds: float
    good_at: float
    """When it last succeeded; at first, from when on it is to succeed."""
    passed: bool = False
    failed: bool = False

    @classmethod
    def of(cls, spec: Json, now: float, period_seconds_max: float = math.inf) -> Probe:
        """`now`: on any clock that `hear` is told, too."""
        period = min(spec.get("periodSeconds", 10), period_seconds_max)
        patience = spec.get("failureThreshold", 3) * period
        return cls(patience, now + spec.get("initialDelaySeconds", 0))

    def hear(self, good: bool, now: float) -> None:
        if good:
            self.good_at, self.passed, self.failed = now, True, False
        elif now - self.good_at >= self.patience_seconds:
            self.passed, self.failed = False, True


async def answers_well(web: aiohttp.ClientSession, address: str, container: Json, probe: Json) -> bool:
    """What the probe asks of the container at that address."""
    assert "httpGet" in probe, f"of probes only httpGet is played here, not {probe}"
    how = probe["httpGet"]
    ports = {one["name"]: one["containerPort"] for one in container.get("ports", ()) if "name" in one}
    url = f"http://{address}:{ports.get(how['port'], how['port'])}{how.get('path', '/')}"
    try:
        async with web.get(url, timeout=aiohttp.ClientTimeout(probe.get("timeoutSeconds", 1))) as answer:
            return answer.ok
    except AWAY:
        return False
