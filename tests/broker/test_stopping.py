"""A clean stop: whatever still arrives is told that the broker stops, however late it comes."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.api import Api, code_of, start_of
from support.waiting import until
from tidelog.errors import Stopping
from tidelog_broker.api.fetch import FetchCall
from tidelog_broker.config.settings import Settings
from tidelog_broker.hosting.threads import WorkThreads
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.service import Service
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_proto import common_pb2, log_pb2

RECORDS = 10


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A broker in this process; a test stops it."""
    format_solo(OsFiles(), str(tmp_path / "data"), cluster_id=b"c" * 16, broker_id=0, directory_id=b"d" * 16)
    made = Service(
        Settings(
            data_dir=tmp_path / "data", listeners=["internal=127.0.0.1:0"], http="", disk_reserve_bytes=0
        )
    )
    await made.start()
    yield made


async def _filled(service: Service) -> common_pb2.StreamDescription:
    (listener,) = service.listeners
    async with Api(f"{listener.host}:{listener.port}") as api:
        stream = await api.create()
        await api.publish(stream, *(bytes(2000) for _ in range(RECORDS)))
    return stream


@pytest.mark.parametrize("follow", [True, False])
async def test_a_fetch_of_records_that_a_stop_interrupts_ends_with_stopping(
    service: Service, follow: bool
) -> None:
    stream = await _filled(service)
    request = log_pb2.FetchRequest(
        partitions=[start_of(stream)], follow=follow, format=log_pb2.RECORDS, response_bytes_max=1
    )
    answers = FetchCall(service.broker, request).responses()
    first = log_pb2.FetchResponse.FromString((await anext(answers)).SerializeToString())
    assert len(first.records.records) < RECORDS, "the rest is decoded when it is asked for"

    await service.stop()

    last = [answer async for answer in answers][-1]
    assert isinstance(last, log_pb2.FetchResponse)
    assert code_of(last.error) == "STOPPING"


@pytest.mark.parametrize("start", [{"timestamp_us": 0}, {"earliest": True}])
async def test_a_fetch_that_comes_after_the_threads_stopped_ends_with_stopping(
    service: Service, start: dict[str, Any]
) -> None:
    stream = await _filled(service)
    taken = service.broker.leading(stream.stream_id, 0)
    await service.stop()
    # As if it had found its partition just before.
    taken.stopped = False
    service.broker.leading = lambda stream_id, partition: taken  # type: ignore[method-assign]
    request = log_pb2.FetchRequest(partitions=[start_of(stream, **start)], format=log_pb2.RECORDS)

    (answer,) = [one async for one in FetchCall(service.broker, request).responses()]

    assert isinstance(answer, log_pb2.FetchResponse)
    assert code_of(answer.error) == "STOPPING"


async def test_a_deletion_that_a_stop_overtakes_did_not_happen(service: Service) -> None:
    stream = await _filled(service)
    broker = service.broker
    partition = broker.leading(stream.stream_id, 0)
    go, entered = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert go.wait(10)

    held = asyncio.get_running_loop().run_in_executor(broker._threads.housekeeping, hold)
    await asyncio.to_thread(entered.wait, 5)
    deleting = asyncio.create_task(broker.delete_records(partition, 5))
    await until(lambda: broker._threads.housekeeping._pool._work_queue.qsize() > 0, "it waits for its thread")  # type: ignore[attr-defined]
    stopping = asyncio.create_task(service.stop())
    await until(lambda: broker._threads.housekeeping._stopped, "the threads stop")
    go.set()

    with pytest.raises(Stopping):
        await asyncio.wait_for(deleting, 5)
    assert partition.log.start_offset == 0

    await stopping
    await held


async def test_threads_that_stop_answer_what_they_did_not_begin_and_finish_what_they_did() -> None:
    threads = WorkThreads(ThreadPoolExecutor(1, "test"))
    go, entered = threading.Event(), threading.Event()

    def hold() -> str:
        entered.set()
        assert go.wait(10)
        return "finished"

    begun = threads.submit(hold)
    entered.wait(5)
    waiting = threads.submit(lambda: "never begun")
    stop = threading.Thread(target=threads.shutdown)
    stop.start()
    await until(lambda: threads._stopped, "the stop begins")
    late = threads.submit(lambda: "never begun")
    go.set()
    await asyncio.to_thread(stop.join, 5)

    assert begun.result(5) == "finished"
    for refused in (waiting, late):
        error = refused.exception(5)
        assert isinstance(error, Stopping)
        assert (error.retriable, error.definite) == (True, True)
