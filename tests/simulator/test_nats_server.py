"""The simulated NATS server: its protocol, its routing, and the clients that it drops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from simulator.kernel.network import Network
from simulator.kernel.processes import Process
from simulator.kernel.wire import Conditions
from simulator.nats import client as client_module
from simulator.nats.commands import Command, Commands, Malformed
from simulator.nats.deployment import subjects_of
from simulator.nats.interest import Interest, is_met
from simulator.nats.server import CLIENT_PORT, ServerMachine, host_of
from simulator.plans.nats import draw
from simulator.plans.swarm import plan_of
from simulator.world import SECOND, World
from tidelog_broker.nats.recording import fnv1a_32

CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"echo":true}\r\n'


class Raw(asyncio.Protocol):
    """A client that sends the bytes of the test, and keeps the bytes that it gets."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.lost = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def take(self) -> bytes:
        heard = bytes(self.heard)
        self.heard.clear()
        return heard


class Stage:
    """A world with servers and raw clients in it."""

    def __init__(self, servers: int = 1, pending_bytes_max: int = 1 << 20) -> None:
        self.world = World(1)
        self.network = Network(self.world, Conditions(torn=0.5))
        numbers = range(1, servers + 1)
        self.servers = [
            ServerMachine(
                self.world, self.network, one, tuple(n for n in numbers if n != one), pending_bytes_max
            )
            for one in numbers
        ]
        for server in self.servers:
            server.start()
        self.pass_time(0.5)
        self._clients = 0

    def pass_time(self, seconds: float) -> None:
        end = self.world.now + int(seconds * SECOND)
        reached: list[bool] = []
        self.world.after(end - self.world.now, lambda: reached.append(True))
        while not reached:
            assert self.world.step()

    def client(self, server: int = 1, said: bytes = b"") -> Raw:
        """A client that is connected and has sent `said`."""
        self._clients += 1
        machine = self.network.machine(f"client-{self._clients}")
        process = Process(
            self.world, self.network, machine, f"client {self._clients}", None, lambda: (1, 1), lambda: None
        )
        raw = Raw()

        async def main() -> int:
            await process.loop.create_connection(lambda: raw, host_of(server), CLIENT_PORT)
            raw.transport.write(CONNECT + said)
            await process.loop.create_future()
            return 0

        process.run(main())
        self.pass_time(0.1)
        raw.heard = raw.heard[raw.heard.find(b"\r\n") + 2 :]
        return raw

    def say(self, client: Raw, said: bytes) -> None:
        client.transport.loop.call_soon(client.transport.write, said)
        self.pass_time(0.1)


def all_at_once(data: bytes) -> list[Command]:
    return Commands(1 << 20).take(data)


def byte_by_byte(data: bytes) -> list[Command]:
    commands = Commands(1 << 20)
    return [found for at in range(len(data)) for found in commands.take(data[at : at + 1])]


@pytest.mark.parametrize("parse", [all_at_once, byte_by_byte])
def test_commands_are_parsed_from_pieces_of_any_size(parse: Callable[[bytes], list[Command]]) -> None:
    said = b"PING\r\nSUB a.* 1\r\nPUB a.b r 2\r\nhi\r\nHPUB a.b 12 14\r\nNATS/1.0\r\n\r\nyo\r\n"
    assert parse(said) == [
        Command("PING", ()),
        Command("SUB", (b"a.*", b"1"), text=b"a.* 1"),
        Command("PUB", (b"a.b", b"r"), b"", b"hi"),
        Command("HPUB", (b"a.b",), b"NATS/1.0\r\n\r\n", b"yo"),
    ]


@pytest.mark.parametrize(
    "said", [b"PUB a\r\n", b"PUB a x\r\n", b"HPUB a 9 3\r\nabc\r\n", b"PUB a 1\r\nabc\r\n"]
)
def test_a_malformed_command_is_refused(said: bytes) -> None:
    with pytest.raises(Malformed):
        all_at_once(said)


@pytest.mark.parametrize(
    ("pattern", "subject", "meets"),
    [
        (b"a.b", b"a.b", True),
        (b"a.b", b"a", False),
        (b"a.*", b"a.b", True),
        (b"a.*", b"a.b.c", False),
        (b"a.>", b"a.b.c", True),
        (b"a.>", b"a", False),
        (b">", b"a", True),
        (b"*.b", b"a.b", True),
    ],
)
def test_subjects_match_patterns_as_in_nats(pattern: bytes, subject: bytes, meets: bool) -> None:
    assert is_met(pattern, subject) is meets


def test_interest_reports_the_first_and_the_last_subscription_of_a_pattern() -> None:
    interest = Interest()
    assert [interest.add(b"a"), interest.add(b"a")] == [True, False]
    assert [interest.remove(b"a"), interest.remove(b"a"), interest.remove(b"a")] == [False, True, False]


def test_a_message_goes_to_every_matching_subscription() -> None:
    stage = Stage()
    wide, narrow = stage.client(said=b"SUB a.> 1\r\n"), stage.client(said=b"SUB a.b 7\r\nSUB c 8\r\n")
    publisher = stage.client(said=b"PUB a.b here 2\r\nhi\r\n")
    assert wide.take() == b"MSG a.b 1 here 2\r\nhi\r\n"
    assert narrow.take() == b"MSG a.b 7 here 2\r\nhi\r\n"
    assert publisher.take() == b""


def test_headers_arrive_as_they_were_sent() -> None:
    stage = Stage()
    other = stage.client(said=b"SUB a 1\r\n")
    stage.client(said=b"HPUB a 17 19\r\nNATS/1.0\r\nA:1\r\n\r\nhi\r\n")
    assert other.take() == b"HMSG a 1 17 19\r\nNATS/1.0\r\nA:1\r\n\r\nhi\r\n"


def test_a_request_without_subscribers_gets_a_no_responders_message() -> None:
    stage = Stage()
    asking = stage.client(said=b"SUB box.* 3\r\nPUB nobody box.1 1\r\nx\r\n")
    assert asking.take() == b"HMSG box.1 3 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"


def test_a_subscription_ends_at_once_or_after_a_number_of_messages() -> None:
    stage = Stage()
    other = stage.client(said=b"SUB a 1\r\nUNSUB 1 2\r\nSUB b 2\r\nUNSUB 2\r\n")
    stage.client(said=b"PUB a 1\r\n1\r\nPUB b 1\r\nx\r\nPUB a 1\r\n2\r\nPUB a 1\r\n3\r\n")
    assert other.take() == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\n"


def test_a_slow_consumer_is_dropped_and_other_clients_stay() -> None:
    stage = Stage(pending_bytes_max=10_000)
    slow, quick = stage.client(said=b"SUB a 1\r\n"), stage.client(said=b"SUB a 1\r\n")
    slow.transport.pause_reading()
    publisher = stage.client()
    for _ in range(40):
        stage.say(publisher, b"PUB a 4000\r\n" + b"." * 4000 + b"\r\n")
    assert len(quick.take()) > 160_000
    assert not quick.lost
    slow.transport.resume_reading()
    stage.pass_time(1)
    assert slow.lost
    assert slow.take().endswith(b"-ERR 'Slow Consumer'\r\n")
    assert stage.servers[0].ended == {"Slow Consumer": 1}


def test_a_silent_client_is_dropped() -> None:
    stage = Stage()
    silent = stage.client()
    stage.pass_time(client_module.PING_SECONDS * (client_module.PINGS_UNANSWERED_MAX + 2))
    assert silent.lost
    assert silent.take().endswith(b"-ERR 'Stale Connection'\r\n")


def test_a_malformed_command_ends_the_connection_with_an_error() -> None:
    stage = Stage()
    broken = stage.client(said=b"HELLO\r\n")
    assert broken.take() == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert broken.lost


def test_a_message_and_its_reply_cross_the_route() -> None:
    stage = Stage(servers=2)
    other = stage.client(server=2, said=b"SUB a.* 1\r\n")
    asking = stage.client(server=1, said=b"SUB box 9\r\nPUB a.b box 2\r\nhi\r\n")
    assert other.take() == b"MSG a.b 1 box 2\r\nhi\r\n"
    stage.say(other, b"PUB box 2\r\nyo\r\n")
    assert asking.take() == b"MSG box 9 2\r\nyo\r\n"


def test_a_restarted_server_is_empty_and_its_route_reconnects() -> None:
    stage = Stage(servers=2)
    other = stage.client(server=2, said=b"SUB a 1\r\n")
    stage.servers[1].kill(power=False)
    stage.pass_time(0.1)
    assert other.lost
    stage.servers[1].start()
    stage.pass_time(1)
    asking = stage.client(server=1, said=b"SUB box 1\r\nPUB a box 1\r\nx\r\n")
    assert b"503" in asking.take()
    again = stage.client(server=2, said=b"SUB a 1\r\n")
    stage.say(asking, b"PUB a box 1\r\ny\r\n")
    assert again.take() == b"MSG a 1 box 1\r\ny\r\n"


def test_info_names_the_server_and_the_other_servers() -> None:
    stage = Stage(servers=2)
    server = stage.servers[0].server
    assert server is not None
    info = json.loads(json.dumps(server.info(4)))
    assert info["headers"] is True
    assert info["connect_urls"] == ["nats-1:4222", "nats-2:4222"]


def test_subjects_are_found_for_each_partition() -> None:
    for pattern in ("s0.*", "s0.>", "*.s0", ">", "s0.*.y"):
        for partition in (0, 1):
            subjects = subjects_of(pattern, 2, partition)
            assert subjects
            assert all(is_met(pattern.encode(), subject) for subject in subjects)
            assert {fnv1a_32(subject) % 2 for subject in subjects} == {partition}
    assert subjects_of("s0", 2, fnv1a_32(b"s0") % 2) == (b"s0",)
    assert subjects_of("s0", 2, 1 - fnv1a_32(b"s0") % 2) == ()


def test_one_seed_in_three_has_nats_and_no_other_plan_changes() -> None:
    plans = [plan_of(seed) for seed in range(1, 301)]
    assert 70 <= sum(plan.nats is not None for plan in plans) <= 130
    for plan in plans:
        assert bool(plan.nats) == any(stream.subject for stream in plan.streams)
        assert draw(plan).nats == plan.nats
