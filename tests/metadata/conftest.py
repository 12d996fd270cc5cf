"""Hypothesis without a deadline, quiet logs, and no event loop that nobody closes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import settings
from structlog.testing import capture_logs

settings.register_profile("metadata", deadline=None)
settings.load_profile("metadata")

# looptime's plugin asks for the current event loop around every plain test, and asyncio makes one for
# whoever asks first; nobody would close it. Once told that there is none, asyncio makes none.
asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield
