"""A fake broker and a client of it, for the tests that need both; and Hypothesis without a deadline,
because a busy machine is not a failure."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings

import tidelog
from support.fake_broker import FakeBroker
from tidelog import Client, ClientOptions, RetryPolicy

settings.register_profile("client", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("client")

# Otherwise pytest-asyncio asks for a loop before there is one, which makes one that nobody closes.
asyncio.set_event_loop(None)

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=10)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def log(broker: FakeBroker) -> AsyncIterator[Client]:
    async with tidelog.connect(broker.address, options=ClientOptions(retry=QUICK)) as client:
        yield client
