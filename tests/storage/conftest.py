"""Hypothesis without a deadline, and the store's log lines kept out of the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from structlog.testing import capture_logs

settings.register_profile("storage", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("storage")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield
