"""Which answers of brokers the operator requests again, and which it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tidelog
from support.kube.situations import Brokers as Situation
from tidelog.model import ClusterDescription
from tidelog_operator.brokers import Brokers


class Client:
    """Descriptions that brokers return one after the other."""

    def __init__(self, *answers: ClusterDescription) -> None:
        self._answers = list(answers)
        self.listed = 0

    async def describe_cluster(self) -> ClusterDescription:
        return self._answers.pop(0)

    async def list_streams(self) -> list[Any]:
        self.listed += 1
        return []

    async def describe_replicas(self) -> list[Any]:
        return []

    async def close(self) -> None: ...


async def test_votes_and_controllers_that_change_without_a_version_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Situation(5).view().cluster
    moved, decided = replace(first, voters=(0, 1, 4)), replace(first, voters=(0, 1, 4), controller=1)
    client = Client(first, first, moved, decided)

    async def connect(*_: Any, **__: Any) -> Client:
        return client

    monkeypatch.setattr(tidelog, "connect", connect)
    brokers = Brokers()
    views = [await brokers.look(["10.0.0.1"], {}) for _ in range(4)]

    assert [one.cluster for one in views] == [first, first, moved, decided]
    assert client.listed == 3
    await brokers.close()
