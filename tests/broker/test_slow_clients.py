"""Clients that are slow, silent or many keep nobody else out: neither probes nor other clients."""

import asyncio
import contextlib
import os
import socket
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from support.api import Api, Refusal, batch, start_of
from support.broker import BrokerProcess
from support.hosts import HOST
from support.waiting import until, until_true
from tidelog.errors import ResourceExhausted
from tidelog.records import split_batches
from tidelog_broker.api.access_control import open_to_all
from tidelog_broker.api.admission import Admission, client_of
from tidelog_broker.api.http import PAGES_MAX, HttpDoor
from tidelog_broker.metrics import Metrics
from tidelog_proto import common_pb2, log_pb2

CONNECTIONS = 8
PAGE = {"large": "x" * (16 << 20)}
"""More than the sockets' buffers hold, so that its sending waits for the reader."""


class Door:
    """An HTTP door alone."""

    def __init__(self, seconds_max: float = 60.0) -> None:
        self.http = HttpDoor(
            "127.0.0.1",
            0,
            Metrics(list),
            ready=lambda: None,
            state=lambda: PAGE,
            connections_max=CONNECTIONS,
            seconds_max=seconds_max,
            control=open_to_all(),
        )
        self.http.start()

    def connect(self, request: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.http.port), timeout=10)
        made.sendall(request)
        return made

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http.port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    @property
    def open(self) -> int:
        return len(self.http._server._open)


@pytest_asyncio.fixture
async def door() -> AsyncIterator[Door]:
    made = Door()
    yield made
    await asyncio.to_thread(made.http.stop)


@contextlib.contextmanager
def all_closed(sockets: list[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in sockets:
            one.close()


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nSlow: "], ids=["silent", "slow"])
async def test_clients_that_never_end_their_begunkeep_no_probe_out(door: Door, begun: bytes) -> None:
    with all_closed([door.connect(begun) for _ in range(5 * CONNECTIONS)]):
        await until(lambda: door.open == CONNECTIONS, "all room is taken")
        for _ in range(2 * CONNECTIONS):
            assert await asyncio.to_thread(door.get, "/healthz") == "ok\n"
            assert await asyncio.to_thread(door.get, "/readyz") == "ready\n"


async def test_clients_that_do_not_read_their_answer_keep_no_probe_out(door: Door) -> None:
    slow: list[socket.socket] = []
    with all_closed(slow):
        for _ in range(3 * CONNECTIONS):
            # One after the other: only few pages are made at a time.
            slow.append(door.connect(b"GET /debug/state HTTP/1.0\r\n\r\n"))
            assert await asyncio.to_thread(slow[-1].recv, 12) == b"HTTP/1.0 200"
        assert await asyncio.to_thread(door.get, "/healthz") == "ok\n"


async def test_a_begunthat_trickles_in_is_cut_when_its_time_is_over() -> None:
    door = Door(seconds_max=0.3)
    trickle, deadline = door.connect(b"GET /healthz HTTP/1.1\r\nSlow: "), time.monotonic() + 10

    def send() -> None:
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                trickle.sendall(b"x")
                time.sleep(0.02)

    with all_closed([trickle]):
        await asyncio.to_thread(send)
        assert time.monotonic() < deadline, "the connection was never cut"
        await until(lambda: door.open == 0, "its room is free")
    await asyncio.to_thread(door.http.stop)


async def test_an_answer_that_is_not_read_is_cut_when_its_time_is_over() -> None:
    door = Door(seconds_max=0.3)
    with all_closed([door.connect(b"GET /debug/state HTTP/1.0\r\n\r\n")]):
        await until(lambda: door.open == 1, "it is served")
        await until(lambda: door.open == 0, "its room is free")
    await asyncio.to_thread(door.http.stop)


async def test_pages_that_take_long_leave_room_for_probes(door: Door) -> None:
    go = threading.Event()
    loop = asyncio.get_running_loop()

    def slow(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        assert go.wait(10)
        start_response("200 OK", [("Content-Length", "5")])
        return [b"page\n"]

    door.http._metrics = slow
    pages = [loop.run_in_executor(None, door.get, "/metrics") for _ in range(PAGES_MAX)]
    await until(lambda: door.open == PAGES_MAX, "the pages are being made")
    await until(lambda: door.http._pages._value == 0, "they have all begun")

    with pytest.raises(urllib.error.HTTPError) as caught:
        await asyncio.to_thread(door.get, "/metrics")
    assert caught.value.code == 503
    assert b"pages are being written already" in caught.value.read()
    caught.value.close()
    assert await asyncio.to_thread(door.get, "/healthz") == "ok\n"

    go.set()
    assert await asyncio.gather(*pages) == ["page\n"] * PAGES_MAX


async def test_a_real_broker_answers_probes_beside_silent_connections(
    api: Api, broker: BrokerProcess
) -> None:
    idle = [socket.create_connection((HOST, broker.http_port)) for _ in range(200)]
    with all_closed(idle):
        assert await asyncio.to_thread(broker.get, "/healthz") == "ok\n"
        assert await asyncio.to_thread(broker.get, "/readyz") == "ready\n"
        assert await api.create()


# --- readers of batches

ANSWER_BYTES_MAX = 8 << 20


@pytest.fixture(scope="module")
def little_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    flags = ("--fetch-answer-bytes-max", str(ANSWER_BYTES_MAX), "--tail-cache-bytes-max", "0")
    with BrokerProcess(tmp_path_factory.mktemp("broker"), flags=flags) as process:
        yield process


async def number_of(broker: BrokerProcess, name: str) -> float:
    text = await asyncio.to_thread(broker.get, "/metrics")
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


async def filled(api: Api, count: int, size: int) -> common_pb2.StreamDescription:
    stream, call = await api.create(batch_bytes_max=4 << 20), api.produce()
    for number in range(count):
        data = batch(b"%d" % number, os.urandom(size))
        assert (await call.produce(stream, data)).HasField("receipt")
    return stream


async def numbers_read(api: Api, stream: common_pb2.StreamDescription) -> int:
    """How many batches a reader gets; it must get them all."""
    count = 0
    async for response in api.fetch(start_of(stream), format=log_pb2.VERBATIM):
        assert not response.HasField("error"), response.error
        count += len(list(split_batches(response.batches)))
    return count


@contextlib.asynccontextmanager
async def stalled(
    broker: BrokerProcess, stream: common_pb2.StreamDescription, count: int
) -> AsyncIterator[None]:
    """Readers of as much as they may have, each with a connection of its own, that read nothing."""
    request = log_pb2.FetchRequest(
        partitions=[start_of(stream)], format=log_pb2.VERBATIM, response_bytes_max=1 << 20
    )
    apis = [Api(broker.address) for _ in range(count)]
    calls = [one.log.Fetch(request) for one in apis]
    try:

        async def all_there() -> bool:
            return await number_of(broker, "tidelog_fetch_calls") >= count

        await until_true(all_there, "they have begun")
        yield
    finally:
        for call in calls:
            call.cancel()
        for one in apis:
            await one.channel.close()


async def test_readers_of_batches_that_stop_reading_hold_no_more_than_a_client_s_share(
    little_room: BrokerProcess,
) -> None:
    async with Api(little_room.address) as api:
        stream = await filled(api, 200, 60_000)
        async with stalled(little_room, stream, 30):
            assert 0 < await number_of(little_room, "tidelog_answer_bytes") <= ANSWER_BYTES_MAX / 4
            # What others read fits into small answers.
            assert await numbers_read(api, stream) == 200
            assert await number_of(little_room, "tidelog_answer_bytes") <= ANSWER_BYTES_MAX / 4

        async def given_back() -> bool:
            return await number_of(little_room, "tidelog_answer_bytes") == 0

        await until_true(given_back, "ended calls hold nothing")


async def test_a_reader_of_large_batches_waits_for_room_and_has_heartbeats(
    little_room: BrokerProcess,
) -> None:
    async with Api(little_room.address) as api:
        small, large = await filled(api, 200, 60_000), await filled(api, 8, 3 << 20)
        request = log_pb2.FetchRequest(partitions=[start_of(large)], format=log_pb2.VERBATIM, heartbeat_ms=50)
        async with stalled(little_room, small, 30):
            call = api.log.Fetch(request)
            first = await call.read()
            assert first.HasField("heartbeat")
            assert await number_of(little_room, "tidelog_answer_waiting") == 1
        count = 0
        while not (response := await call.read()).HasField("end"):
            count += len(list(split_batches(response.batches)))
        assert count == 8
        assert await number_of(little_room, "tidelog_answer_waiting") == 0


# --- gRPC


def test_a_client_has_no_more_calls_than_its_share_and_others_have_theirs() -> None:
    admission = Admission(calls_max=5, client_calls_max=3)
    for _ in range(3):
        admission.enter("10.0.0.1")
    with pytest.raises(ResourceExhausted) as own:
        admission.enter("10.0.0.1")
    admission.enter("10.0.0.2")
    admission.enter("10.0.0.2")
    with pytest.raises(ResourceExhausted) as all_of_them:
        admission.enter("10.0.0.3")
    admission.leave("10.0.0.1")
    admission.enter("10.0.0.3")

    assert own.value.details["limit"] == "client_calls_max"
    assert all_of_them.value.details["limit"] == "connections_max"


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("ipv4:10.0.0.7:51234", "10.0.0.7"),
        ("ipv6:%5Bfd00::7%5D:51234", "%5Bfd00::7%5D"),
        ("ipv6:[::1]:1", "[::1]"),
        ("unix:/run/tidelog.sock", "unix:/run/tidelog.sock"),
    ],
)
def test_a_client_is_the_address_without_the_port(peer: str, client: str) -> None:
    assert client_of(peer) == client


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["connections_max", "client_calls_max"])
async def test_a_call_too_many_is_told_which_limit_is_reached_and_when_to_come_back(
    tmp_path: Path, limit: str
) -> None:
    with BrokerProcess(tmp_path, flags=(f"--{limit.replace('_', '-')}", "4")) as broker:
        async with Api(broker.address) as api:
            stream = await api.create()
            request = log_pb2.FetchRequest(partitions=[start_of(stream)], follow=True, heartbeat_ms=50)
            calls = [api.log.Fetch(request) for _ in range(4)]
            for call in calls:
                await call.read()

            for attempt in (api.publish(stream, b"x"), api.log.Fetch(request).read(), api.produce().answer()):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await attempt
                refused = Refusal(caught.value)
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert refused.code == "RESOURCE_EXHAUSTED"
                assert refused.facts["limit"] == limit
                assert (refused.facts["retriable"], refused.facts["definite"]) == ("true", "true")
                assert refused.retry is not None
                assert refused.retry.retry_delay.seconds == 1

            for call in calls:
                call.cancel()

            async def taken() -> bool:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    return bool(await api.publish(stream, b"x"))
                return False

            await until_true(taken, "calls are taken again")
