"""The probes of a container over HTTP: whether it has started, is ready, is alive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import aiohttp

from support.kube.api import AWAY, Json

STARTUP: Final = "startupProbe"
READINESS: Final = "readinessProbe"
LIVENESS: Final = "livenessProbe"

READINESS_SECONDS_MAX: Final = 1.0
"""The longest period of a readiness probe here, because tests wait for its result."""


@dataclass
class Probe:
    """One probe: a success counts at once, a failure when it has lasted as long as the manifest allows."""

    patience_seconds: float
    good_at: float
    """The time of the last success; at first, the time from which it should succeed."""
    passed: bool = False
    failed: bool = False

    @classmethod
    def of(cls, spec: Json, now: float, period_seconds_max: float = math.inf) -> Probe:
        """`now`: on any clock; `hear` must get times of the same clock."""
        period = min(spec.get("periodSeconds", 10), period_seconds_max)
        patience = spec.get("failureThreshold", 3) * period
        return cls(patience, now + spec.get("initialDelaySeconds", 0))

    def hear(self, good: bool, now: float) -> None:
        if good:
            self.good_at, self.passed, self.failed = now, True, False
        elif now - self.good_at >= self.patience_seconds:
            self.passed, self.failed = False, True


class Health:
    """The results of a container's probes since its start. A missing probe counts as successful."""

    def __init__(self, container: Json) -> None:
        kinds = (STARTUP, READINESS, LIVENESS)
        self._specs: dict[str, Json] = {name: container[name] for name in kinds if name in container}
        self._probes: dict[str, Probe] = {}
        """Records the answers of these probes."""

    @property
    def due(self) -> list[str]:
        """Returns the probes to send: until the container has started, only the startup probe."""
        return [name for name in self._specs if (name == STARTUP) != self.started]

    @property
    def started(self) -> bool:
        return self._passed(STARTUP)

    @property
    def ready(self) -> bool:
        return self.started and self._passed(READINESS)

    @property
    def failed(self) -> str:
        """Returns the probe whose failure requires a kill; empty: none."""
        return next((name for name in self.due if name != READINESS and self._failed(name)), "")

    def hear(self, name: str, good: bool, now: float) -> None:
        if name not in self._probes:
            longest = READINESS_SECONDS_MAX if name == READINESS else math.inf
            self._probes[name] = Probe.of(self._specs[name], now, longest)
        self._probes[name].hear(good, now)

    def _passed(self, name: str) -> bool:
        return name not in self._specs or (name in self._probes and self._probes[name].passed)

    def _failed(self, name: str) -> bool:
        return name in self._probes and self._probes[name].failed


async def answers_well(web: aiohttp.ClientSession, address: str, container: Json, probe: Json) -> bool:
    """Sends the probe to the container at that address."""
    assert "httpGet" in probe, f"of probes only httpGet is played here, not {probe}"
    how = probe["httpGet"]
    ports = {one["name"]: one["containerPort"] for one in container.get("ports", ()) if "name" in one}
    url = f"http://{address}:{ports.get(how['port'], how['port'])}{how.get('path', '/')}"
    try:
        async with web.get(url, timeout=aiohttp.ClientTimeout(probe.get("timeoutSeconds", 1))) as answer:
            return answer.ok
    except AWAY:
        return False
