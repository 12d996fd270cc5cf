"""A broker stops, starts again, and keeps to its limits."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support.api import Api, Refusal, batch, code_of, start_of
from support.broker import BrokerProcess
from support.hosts import HOST
from support.waiting import until, until_true
from tidelog_proto import common_pb2, log_pb2

pytestmark = pytest.mark.slow


async def test_a_stop_answers_what_is_in_flight_and_ends_followers_with_stopping(
    own_broker: BrokerProcess,
) -> None:
    async with Api(own_broker.address) as api:
        stream = await api.create()
        call = api.produce()
        sent = 0

        async def load() -> None:
            nonlocal sent
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while True:
                    await call.send(stream, batch(bytes(2000)))
                    sent += 1
                    await asyncio.sleep(0)

        async def follow() -> str:
            async for response in api.fetch(start_of(stream, latest=True), follow=True):
                if response.HasField("error"):
                    return code_of(response.error)
            return "ended"

        async def answers() -> list[str]:
            found: list[str] = []
            with contextlib.suppress(grpc.aio.AioRpcError):
                while isinstance(response := await call.call.read(), log_pb2.ProduceResponse):
                    found.append("ok" if response.HasField("receipt") else code_of(response.error))
            return found

        loading, following = asyncio.ensure_future(load()), asyncio.ensure_future(follow())
        answering = asyncio.ensure_future(answers())
        await until(lambda: sent >= 100, "records are sent")
        assert await asyncio.to_thread(own_broker.stop) == 0
        assert await asyncio.wait_for(following, 5) == "STOPPING"
        told = await asyncio.wait_for(answering, 5)
        await asyncio.wait_for(loading, 5)
    assert set(told) <= {"ok", "STOPPING", "PRECEDING_FAILED"}
    acknowledged = told.count("ok")
    assert told == sorted(told, key=lambda code: code != "ok"), "an acknowledgement after a refusal"
    await asyncio.to_thread(own_broker.start)
    async with Api(own_broker.address) as api:
        assert len(await api.read(stream)) == acknowledged


async def test_each_start_leads_in_a_greater_epoch_and_offsets_go_on(own_broker: BrokerProcess) -> None:
    epochs = []
    for number in range(3):
        async with Api(own_broker.address) as api:
            stream = await api.create("kept")
            (receipt,) = await api.publish(stream, b"x")
            assert receipt.offset == number
            epochs.append(receipt.leader_epoch)
        own_broker.stop() if number % 2 else own_broker.kill()
        own_broker.start()
    assert epochs == sorted(set(epochs))


async def test_a_start_after_a_clean_stop_reads_no_log(own_broker: BrokerProcess) -> None:
    """Seen from outside: the bytes that the process read until it was ready."""
    async with Api(own_broker.address) as api:
        stream = await api.create()
        call = api.produce()
        for _ in range(60):
            assert (await call.produce(stream, batch(bytes(1_000_000)))).HasField("receipt")
    own_broker.stop()
    own_broker.start()
    fields = dict(line.split(": ") for line in Path(f"/proc/{own_broker.pid}/io").read_text().splitlines())
    # Python and its packages are read too; 60 MB of log on top would stand out.
    assert int(fields["rchar"]) < 90 << 20
    async with Api(own_broker.address) as api:
        assert (await api.publish(stream, b"x"))[0].offset == 60


async def test_readiness_and_health_turn_before_the_door_closes(own_broker: BrokerProcess) -> None:
    async with Api(own_broker.address) as api:
        watch = health_pb2_grpc.HealthStub(api.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(asyncio.to_thread(own_broker.stop))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        assert await stopping == 0


async def test_a_taken_port_is_one_sentence_and_costs_no_clean_stop(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with BrokerProcess(other) as second:
        second.stop()
        marks = sorted(path.name for path in (second.data / "checkpoints").iterdir())
        for listener, http in (
            (own_broker.address, f"{HOST}:0"),
            (f"{HOST}:0", f"{HOST}:{own_broker.http_port}"),
        ):
            ended = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "tidelog_broker", "run", "--data-dir", str(second.data),
                 "--listener", listener, "--http", http],
                capture_output=True, text=True, check=False, timeout=30,
            )  # fmt: skip
            assert ended.returncode == 1
            assert "cannot listen on" in ended.stderr
            assert "Traceback" not in ended.stderr
            assert sorted(path.name for path in (second.data / "checkpoints").iterdir()) == marks


async def test_a_second_broker_on_the_same_data_is_refused(own_broker: BrokerProcess) -> None:
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tidelog_broker", "run", "--data-dir", str(own_broker.data),
         "--listener", f"internal={HOST}:0", "--http", ""],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"in use by another broker (process {own_broker.pid})" in ended.stderr


async def test_more_calls_than_allowed_are_refused_as_exhausted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, flags=("--connections-max", "4")) as broker:
        async with Api(broker.address) as api:
            stream = await api.create()
            request = log_pb2.FetchRequest(partitions=[start_of(stream)], follow=True, heartbeat_ms=50)
            calls = [api.log.Fetch(request) for _ in range(4)]
            for call in calls:
                await call.read()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await api.publish(stream, b"x")
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            calls[0].cancel()
            async with asyncio.timeout(5):
                while True:
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        assert await api.publish(stream, b"x")
                        break
            for call in calls:
                call.cancel()


@pytest.mark.long
async def test_a_flood_of_publishes_is_refused_or_recorded_and_memory_stays_bounded(
    own_broker: BrokerProcess,
) -> None:
    async with Api(own_broker.address) as api:
        stream = await api.create()
        value = bytes(900_000)

        async def one() -> str:
            try:
                await api.publish(stream, value)
            except grpc.aio.AioRpcError as error:
                refused = Refusal(error)
                assert refused.retry is not None
                return refused.code
            return "ok"

        told = await asyncio.gather(*(one() for _ in range(250)))
        assert set(told) <= {"ok", "RESOURCE_EXHAUSTED"}
        count = 0
        async for response in api.fetch(start_of(stream), format=log_pb2.VERBATIM):
            count = response.next.offset
        assert count == told.count("ok")
    status = Path(f"/proc/{own_broker.pid}/status").read_text().splitlines()
    (peak,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM:")]
    assert peak < 800 << 10, f"{peak} KiB at most"


async def test_retention_forgets_and_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, flags=("--sweep-interval-ms", "50")) as broker:
        async with Api(broker.address) as api:
            stream = await api.create(
                retention=common_pb2.Retention(messages=10), segment_bytes=1 << 16, batch_bytes_max=1 << 15
            )
            for _ in range(60):
                await api.publish(stream, bytes(5000))
            start: int = 0

            async def is_trimmed() -> bool:
                nonlocal start
                found = await api.log.Offsets(log_pb2.OffsetsRequest(partitions=[start_of(stream)]))
                start = int(found.partitions[0].log_start_offset)
                return start >= 40

            await until_true(is_trimmed, "40 records are removed")
            assert len(await api.read(stream)) == 60 - start


async def test_log_lines_can_be_json(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, flags=("--log-json",))
    broker.command("format")
    broker.launch()
    await until(lambda: '"event": "listening"' in broker.log(), "the broker listens", 30)
    assert await asyncio.to_thread(broker.stop) == 0
    assert [json.loads(line)["event"] for line in broker.log().splitlines()][-1] == "stopped"
