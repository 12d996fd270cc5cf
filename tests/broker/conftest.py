"""A real broker process for all of these tests, and a client of it for each."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from support.api import Api
from support.broker import BrokerProcess

# looptime's plugin asks for the current event loop around every plain test, and asyncio makes one for
# whoever asks first; nobody would close it. Once told that there is none, asyncio makes none.
asyncio.set_event_loop(None)


@pytest.fixture(scope="session", autouse=True)
def plain_traces() -> Iterator[None]:
    """As the command sets it up: a pretty trace of a broker in this process takes seconds to draw."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Shared: each test makes streams of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker for this test alone, to stop, kill and starve."""
    with BrokerProcess(tmp_path) as process:
        yield process


@pytest_asyncio.fixture
async def api(broker: BrokerProcess) -> AsyncIterator[Api]:
    async with Api(broker.address) as client:
        yield client
