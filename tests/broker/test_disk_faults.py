"""A full disk is waited out; a failed flush ends the broker until somebody has looked (DESIGN 4.3, 4.4)."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from broker.faulty_files import FaultyFiles
from support.api import Api, Refusal, batch, code_of, refusal, start_of
from support.broker import BrokerProcess
from support.waiting import until, until_true
from tidelog_broker.config.settings import Settings
from tidelog_broker.errors import StorageFailure
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.platform import this_machine
from tidelog_broker.service import Service, run_until
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.files.whole_files import sync_found
from tidelog_proto import admin_pb2, common_pb2, log_pb2

VOLUME_MIB = 24


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of a few megabytes."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={VOLUME_MIB}m", "tidelog-test", str(folder)],
        check=False, capture_output=True,
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("NOT RUN: a full disk needs a small tmpfs, and mounting one needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


ROOM_RECORDS_MAX = 3


@pytest.fixture
def cramped_broker(small_volume: Path) -> Iterator[BrokerProcess]:
    flags = (
        "--disk-reserve-bytes",
        str(2 << 20),
        "--sweep-interval-ms",
        "100",
        "--checkpoint-interval-ms",
        "100",
    )
    with BrokerProcess(small_volume, flags=flags) as broker:
        yield broker


async def _accepted(api: Api, stream: common_pb2.StreamDescription, value: bytes = b"after") -> bool:
    """Whether a record is taken; the only other answers are those of a full disk."""
    try:
        await api.publish(stream, value)
    except grpc.aio.AioRpcError as error:
        if Refusal(error).code not in ("DISK_FULL", "UNAVAILABLE"):
            raise
        return False
    return True


async def test_a_full_disk_refuses_writes_definitely_serves_reads_and_heals_by_itself(
    cramped_broker: BrokerProcess,
) -> None:
    pid = cramped_broker.pid
    async with Api(cramped_broker.address) as api:
        filler = await api.create("filler", segment_bytes=2 << 20, batch_bytes_max=1 << 20)
        other = await api.create("other")
        call = api.produce()
        written = 0
        while (response := await call.produce(filler, batch(os.urandom(300_000)))).HasField("receipt"):
            written += 1
        error = response.error
        assert code_of(error) == "DISK_FULL"
        assert (error.definite, error.retriable) == (True, True)
        assert error.retry_after_ms > 0

        # Another way in, the same answer, and no trace of what was refused. The file system may have found
        # room for a record more.
        room = [await _accepted(api, filler, bytes(300_000)) for _ in range(ROOM_RECORDS_MAX)]
        written += sum(room)
        refused = await refusal(api.publish(filler, bytes(300_000)))
        assert refused.code == "DISK_FULL"
        assert refused.retry is not None
        assert len(await api.read(filler)) == written

        # Metadata lives on its reserve, and so do the deletions that make room.
        made = await api.create("made-while-full")
        assert made.stream_id
        await api.admin.AlterStream(
            admin_pb2.AlterStreamRequest(name="other", config=common_pb2.StreamConfig(segment_age_ms=60_000))
        )
        await api.log.DeleteRecords(
            log_pb2.DeleteRecordsRequest(stream_id=filler.stream_id, before_offset=written)
        )

        for stream in (filler, other, made):
            await until_true(lambda stream=stream: _accepted(api, stream), "writes resume")  # type: ignore[misc]
        response = await call.produce(filler, batch(b"and the call"), reset=True)
        assert response.HasField("receipt"), response.error
    assert cramped_broker.pid == pid
    assert cramped_broker.stop() == 0
    # Said, and not again for each refusal.
    assert cramped_broker.log().count("appends are refused") == 1


async def test_a_broker_killed_on_a_full_disk_keeps_all_acknowledged_records(
    cramped_broker: BrokerProcess,
) -> None:
    async with Api(cramped_broker.address) as api:
        filler = await api.create("filler", segment_bytes=4 << 20)
        call = api.produce()
        written = 0
        while (await call.produce(filler, batch(os.urandom(300_000)))).HasField("receipt"):
            written += 1
    cramped_broker.kill()
    cramped_broker.start()
    async with Api(cramped_broker.address) as api:
        assert len(await api.read(filler)) == written


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    format_solo(OsFiles(), str(path), cluster_id=os.urandom(16), broker_id=0, directory_id=os.urandom(16))
    return path


@asynccontextmanager
async def _running(data: Path, files: FaultyFiles) -> AsyncIterator[tuple[Service, Api, "asyncio.Task[int]"]]:
    """A broker in this process; what it ends with is the task's result."""
    settings = Settings(
        data_dir=data, listeners=["internal=127.0.0.1:0"], http="", disk_reserve_bytes=0,
        checkpoint_interval_ms=50,
    )  # fmt: skip
    service = Service(settings, this_machine(files))
    stop = asyncio.Event()
    ending = asyncio.create_task(run_until(service, stop))
    await until(lambda: service.serving or ending.done(), "the broker serves")
    if not service.serving:
        ending.result()
    try:
        async with Api(service.listeners[0].target) as api:
            yield service, api, ending
    finally:
        stop.set()
        await ending


async def _command(name: str, data: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "tidelog_broker", name, "--data-dir", str(data), *more]
    return await asyncio.to_thread(
        subprocess.run, arguments, capture_output=True, text=True, check=False, timeout=60
    )


async def test_no_room_for_one_write_is_answered_and_forgotten(data: Path) -> None:
    files = FaultyFiles()
    async with _running(data, files) as (_, api, _):
        stream = await api.create()
        await api.publish(stream, b"before")
        files.faults.full = True
        error = (await api.produce().produce(stream, batch(b"never"))).error
        assert code_of(error) == "DISK_FULL"
        late = await api.create()
        assert (await refusal(api.publish(late, b"x"))).code == "UNAVAILABLE"
        replicas = await api.admin.DescribeReplicas(admin_pb2.DescribeReplicasRequest(name=late.name))
        assert [replica.state for replica in replicas.replicas] == ["uncreated"]
        files.faults.full = False
        assert (await api.publish(stream, b"after"))[0].offset == 1
        assert await api.values(stream) == [b"before", b"after"]

        await until_true(lambda: _accepted(api, late), "the partition is made")


@pytest.mark.parametrize("suffix", [".log", "leader-epochs"])
async def test_a_failed_flush_ends_the_broker_until_it_is_recovered(data: Path, suffix: str) -> None:
    files = FaultyFiles()
    async with _running(data, files) as (service, api, ending):
        stream = await api.create()
        waiting = await api.create()
        if suffix == ".log":
            await api.publish(stream, b"acknowledged")
        follower = api.fetch(start_of(stream, latest=True), follow=True)
        files.faults.failing_sync = f"000{suffix}" if suffix == ".log" else suffix
        answers = await asyncio.gather(
            refusal(api.publish(stream, b"nobody knows")), refusal(api.publish(waiting, b"nobody knows"))
        )
        assert {answer.code for answer in answers} == {"STORAGE_FAILED"}
        assert all(answer.facts["definite"] == "false" for answer in answers)
        ends = [code_of(item.error) async for item in follower if item.HasField("error")]
        assert ends == ["STORAGE_FAILED"]
        assert await ending == 1
        assert service.broker.readiness.reason()
    assert (data / "FAILED").exists()

    started = await _command("run", data, "--listener", "internal=127.0.0.1:0", "--http", "")
    assert started.returncode == 1
    assert f"run `tidelog-broker recover --data-dir {data}`" in started.stderr
    assert "Traceback" not in started.stderr

    recovered = await _command("recover", data)
    assert recovered.returncode == 0
    assert "the broker can start" in recovered.stdout
    async with _running(data, FaultyFiles()) as (_, api, _):
        values = await api.values(stream)
        assert values[:1] == [b"acknowledged"] if suffix == ".log" else True
        assert set(values) <= {b"acknowledged", b"nobody knows"}
        assert await api.publish(stream, b"again")


@pytest.mark.parametrize("path", ["raft/00000000000000000001.log", "/raft", "/streams"])
async def test_a_flush_that_fails_at_a_start_leaves_the_mark_too(data: Path, path: str) -> None:
    async with _running(data, FaultyFiles()):
        pass
    (data / "checkpoints" / "clean-stop").unlink()
    files = FaultyFiles()
    files.faults.failing_sync = path
    with pytest.raises(StorageFailure, match="could not be flushed"):
        async with _running(data, files):
            pass
    assert "could not be flushed" in (data / "FAILED").read_text()

    recovered = await _command("recover", data)
    assert recovered.returncode == 0
    async with _running(data, FaultyFiles()) as (_, api, _):
        assert await api.create()


async def test_a_write_that_cannot_be_undone_ends_the_broker_and_everybody_is_answered(data: Path) -> None:
    files = FaultyFiles()
    async with _running(data, files) as (_, api, ending):
        stream = await api.create()
        await api.publish(stream, b"acknowledged")
        files.faults.full = files.faults.failing_truncate = True
        answers = await asyncio.gather(*(refusal(api.publish(stream, b"x" * 50_000)) for _ in range(5)))
        assert {answer.code for answer in answers} == {"STORAGE_FAILED"}
        assert await asyncio.wait_for(ending, 10) == 1
    assert (data / "FAILED").exists()


async def test_a_clean_stop_on_a_full_disk_is_a_stop_all_the_same(data: Path) -> None:
    files = FaultyFiles()
    async with _running(data, files) as (_, api, ending):
        stream = await api.create()
        await api.publish(stream, b"kept")
        files.faults.full = True
    assert ending.result() == 0
    files.faults.full = False
    async with _running(data, files) as (_, api, _):
        assert await api.values(stream) == [b"kept"]


def test_a_folder_that_cannot_be_opened_is_no_failed_flush(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_found(OsFiles(), str(tmp_path / "absent"))
