"""Jobs and clusters in processes of their own: this process has no Spark session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.trio import Trio
from support.waiting import wait_until
from tidelog import blocking


@pytest.fixture(scope="session")
def log(brokers: Trio) -> Iterator[blocking.Client]:
    with blocking.connect(brokers.addresses) as client:
        wait_until(lambda: len(client.describe_cluster().brokers) == 3, "three brokers")
        yield client
