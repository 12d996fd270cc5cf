"""A bug that shows in a leader's log: the controller elects another one, and writers go on there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quorum.services import started
from tidelog_broker.writing.partition import Partition


async def test_writers_go_on_at_another_leader_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path, 3) as brokers, brokers.client() as client:
        stream = await client.create_stream("orders", replication_factor=3)
        leader = stream.partitions[0].leader
        assert leader is not None
        service = brokers[leader].service
        assert service is not None
        bad = service.broker.partitions[stream.stream_id, 0]
        original = Partition.write_round

        def broken(self: Partition, *given: Any) -> Any:
            outcomes = original(self, *given)
            if self is bad:
                raise KeyError("a planted bug")
            return outcomes

        async with client.producer("orders") as producer:
            await producer.send(b"before")
            monkeypatch.setattr(Partition, "write_round", broken)
            # Its first attempt is in doubt, and is made again under the same sequence.
            receipt = await producer.send(b"meets the bug")
            await producer.send(b"after")

        assert receipt.offset == 1
        assert not service.broker.failed.done()
        values = [one.value async for one in client.reader("orders", start="earliest", follow=False)]
        assert values == [b"before", b"meets the bug", b"after"]
        monkeypatch.undo()
        await brokers[leader].restart()

        async def complete() -> bool:
            described = await client.describe_stream("orders")
            return len(described.partitions[0].isr) == 3

        await brokers.eventually(complete)
