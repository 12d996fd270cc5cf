"""What recovery logs about torn ends is expected here, and kept quiet; transcripts can be written again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known only when tests/raft is named on the command line; elsewhere transcripts are compared."""
    parser.addoption(
        "--rewrite-scenarios", action="store_true", help="write tests/scenarios/raft as things happen today"
    )


@pytest.fixture
def rewrite_scenarios(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-scenarios", default=False))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield
