"""Hypothesis without a deadline here: a busy machine is not a failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("records", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("records")
