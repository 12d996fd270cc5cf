"""Logs of refusals that tests provoke are kept quiet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield
