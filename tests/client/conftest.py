"""A fake broker and a client of it, for the tests that need both."""

from collections.abc import AsyncIterator

import pytest

import tidelog
from support.fake_broker import FakeBroker
from tidelog import Client, ClientOptions, RetryPolicy

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=10)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def log(broker: FakeBroker) -> AsyncIterator[Client]:
    async with tidelog.connect(broker.address, options=ClientOptions(retry=QUICK)) as client:
        yield client
