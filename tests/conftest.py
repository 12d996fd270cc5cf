"""What holds for all tests: no deadline on a busy machine, and no event loop that nobody closes."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, settings

settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")

# pytest-asyncio asks for the current event loop before the first asynchronous test, and asyncio makes one
# for whoever asks first; nobody would close it. Once told that there is none, asyncio makes none.
asyncio.set_event_loop(None)
