"""A bug that shows in one partition ends the service of that partition, not the broker (DESIGN 7)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.api import Api, batch, code_of, refusal
from tidelog_broker.config.settings import Settings
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.service import Service
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.writing.partition import Partition
from tidelog_proto import admin_pb2, common_pb2, log_pb2


class Solo:
    """A broker in this process, over its runs."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        format_solo(OsFiles(), str(self._data), cluster_id=b"c" * 16, broker_id=0, directory_id=b"d" * 16)
        self.service: Service

    async def start(self) -> None:
        self.service = Service(
            Settings(data_dir=self._data, listeners=["internal=127.0.0.1:0"], http="", disk_reserve_bytes=0)
        )
        await self.service.start()

    def api(self) -> Api:
        (listener,) = self.service.listeners
        return Api(f"{listener.host}:{listener.port}")

    def metric(self, name: str) -> float:
        return float(self.service.broker.metrics.registry.get_sample_value(name) or 0)


@pytest_asyncio.fixture
async def solo(tmp_path: Path) -> AsyncIterator[Solo]:
    made = Solo(tmp_path)
    await made.start()
    yield made
    await made.service.stop()


def plant(monkeypatch: pytest.MonkeyPatch, stream: common_pb2.StreamDescription) -> None:
    """Writes to a stream fail once they are done, for a reason that nobody foresaw."""
    original = Partition.write_round

    def broken(self: Partition, *given: Any) -> Any:
        outcomes = original(self, *given)
        if self.stream_id == stream.stream_id and outcomes:
            raise KeyError("a planted bug")
        return outcomes

    monkeypatch.setattr(Partition, "write_round", broken)


async def test_a_bug_in_one_partition_leaves_the_broker_and_every_other_partition_working(
    solo: Solo, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with solo.api() as api:
        bad, good = await api.create("bad"), await api.create("good")
        await api.publish(bad, b"before")
        plant(monkeypatch, bad)

        failed, _ = await asyncio.gather(refusal(api.publish(bad, b"fails")), api.publish(good, b"beside"))
        assert (failed.code, failed.facts["definite"]) == ("INTERNAL", "false")

        again = await refusal(api.publish(bad, b"later"))
        assert (again.code, again.facts["retriable"], again.facts["definite"]) == (
            "UNAVAILABLE",
            "true",
            "true",
        )
        assert again.retry is not None
        for _ in range(3):
            await api.publish(good, b"after")
        assert len(await api.values(good)) == 4
        assert not solo.service.broker.failed.done()
        assert solo.metric("tidelog_halted_partitions") == solo.metric("tidelog_lost_partitions") == 1
        assert "KeyError" in next(iter(solo.service.broker.state()["lost"].values()))
        assert solo.service.broker.readiness.reason() is None
        described = await api.admin.DescribeReplicas(admin_pb2.DescribeReplicasRequest(name=bad.name))
        assert [(one.state, one.role) for one in described.replicas] == [("halted", "lost")]


async def test_a_restart_recovers_what_a_bug_halted(solo: Solo, monkeypatch: pytest.MonkeyPatch) -> None:
    async with solo.api() as api:
        bad = await api.create("bad")
        await api.publish(bad, b"before")
        with monkeypatch.context() as patch:
            plant(patch, bad)
            await refusal(api.publish(bad, b"fails"))
    await solo.service.stop()

    await solo.start()

    async with solo.api() as api:
        # What failed may be there: its answer left that open.
        assert await api.values(bad) == [b"before", b"fails"]
        (receipt,) = await api.publish(bad, b"after")
        assert receipt.offset == 2
        assert solo.metric("tidelog_lost_partitions") == 0


async def test_a_halted_partitions_stream_can_be_deleted_and_made_again(
    solo: Solo, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with solo.api() as api:
        bad = await api.create("bad")
        with monkeypatch.context() as patch:
            plant(patch, bad)
            await refusal(api.publish(bad, b"fails"))
        await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name="bad"))
        made = await api.create("bad")
        assert (await api.publish(made, b"x"))[0].offset == 0
        assert solo.metric("tidelog_halted_partitions") == 0


async def test_a_produce_call_over_several_partitions_outlives_the_one_that_failed(
    solo: Solo, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with solo.api() as api:
        bad, good = await api.create("bad"), await api.create("good")
        plant(monkeypatch, bad)
        call = api.produce()
        assert code_of((await call.produce(bad, batch(b"x"))).error) == "INTERNAL"
        assert code_of((await call.produce(bad, batch(b"x"), reset=True)).error) == "UNAVAILABLE"
        assert (await call.produce(good, batch(b"x"))).HasField("receipt")
        answer = await anext(
            aiter(api.fetch(log_pb2.FetchPartition(stream_id=bad.stream_id, partition=0, earliest=True)))
        )
        assert code_of(answer.error) == "UNAVAILABLE"
