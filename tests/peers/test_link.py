"""A link over real sockets: it comes back by itself, and what broke it is told for what it is."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from peers.conftest import Recorded, Station, identity
from support.hosts import HOST
from support.waiting import until
from tidelog_broker.peers import link as tidelog_link
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.peers.link import PeerLink
from tidelog_broker.peers.watch import Evidence


class Owner(Recorded):
    """Uses a link to broker 1."""

    def __init__(self, port: int | None) -> None:
        super().__init__()
        self.port = port
        self.told: list[Evidence | None] = []
        self.asked = 0
        """How often the link wanted to dial."""

    def address(self) -> tuple[str, int] | None:
        self.asked += 1
        return None if self.port is None else (HOST, self.port)

    def evidence(self, evidence: Evidence | None) -> None:
        self.told.append(evidence)

    def directory_restored(self, reason: str) -> None:
        raise AssertionError(f"the link takes this data directory for a copy: {reason}")


@asynccontextmanager
async def linked(owner: Owner) -> AsyncIterator[PeerLink]:
    link = PeerLink(1, ConnectionKind.CONTROL, lambda: identity(2), owner, random.Random(1))
    link.start()
    try:
        yield link
    finally:
        await link.stop("the test is over")


async def again(station: Station, port: int) -> Station:
    """The broker comes back at the same address."""
    after = Station(station.me)
    await after.listener.start(HOST, port)
    return after


async def test_a_link_opens_and_stays_open(station: Station) -> None:
    owner = Owner(station.port)
    async with linked(owner) as link:
        await until(lambda: link.connection and station.connections, "it is open")
        link.connection.send(b"hello") if link.connection else None
        await until(lambda: station.frames == [(b"hello", b"")], "it carries")
    assert owner.told == []
    await until(lambda: station.ends == ["closed by the other end"], "the other end knows")


async def test_it_waits_until_the_address_is_known(station: Station) -> None:
    owner = Owner(None)
    async with linked(owner) as link:
        await until(lambda: owner.asked >= 2, "it asks again")
        assert not station.hellos
        owner.port = station.port
        link.hurry()
        await until(lambda: link.connection, "it is open")
    assert owner.told == []


async def test_a_broker_that_was_not_there_yet_is_no_evidence() -> None:
    with socket.socket() as held:
        held.bind((HOST, 0))
        owner = Owner(held.getsockname()[1])
        async with linked(owner):
            await until(lambda: owner.asked >= 3, "it was refused twice")
    assert owner.told == []


async def test_a_process_that_ended_is_refused_and_one_that_came_back_is_not(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidelog_link, "REDIAL_SECONDS_MAX", 5.0)  # Both ends share a loop, which may stall.
    owner = Owner(station.port)
    async with linked(owner) as link:
        await until(lambda: link.connection, "it is open")
        await station.listener.stop("killed")
        await until(lambda: owner.told == [Evidence.REFUSED], "the redial is refused")
        assert owner.ends == ["closed by the other end"]
        assert link.connection is None
        after = await again(station, station.port)
        await until(lambda: owner.told == [Evidence.REFUSED, None], "it is back")
        await until(lambda: after.connections, "and connected")
    await after.listener.stop("done")


async def test_one_broken_connection_that_the_next_dial_mends_is_nothing(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidelog_link, "REDIAL_SECONDS_MAX", 5.0)  # Both ends share a loop, which may stall.
    owner = Owner(station.port)
    async with linked(owner):
        await until(lambda: station.connections, "it is open")
        station.connections[0].abort("a hiccup")
        await until(lambda: len(station.connections) == 2, "it is open again")
    assert owner.told == []


@contextmanager
def swallowing() -> Iterator[int]:
    """A port that takes connections and never says a word, as of a machine behind a cut link."""
    with socket.socket() as mute:
        mute.bind((HOST, 0))
        mute.listen(5)
        yield mute.getsockname()[1]


async def test_a_machine_that_swallows_the_redial_is_a_reset(station: Station) -> None:
    owner = Owner(station.port)
    async with linked(owner):
        await until(lambda: station.connections, "it is open")
        with swallowing() as owner.port:
            station.connections[0].abort("the link is cut")
            await until(lambda: owner.told == [Evidence.RESET], "the redial came to nothing")


class Mute(PeerConnection):
    """One that says nothing after its first words."""

    def _keep_alive(self) -> None:
        return


async def test_a_process_that_hangs_is_silent_and_heard_again_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog_broker.peers.listener.PeerConnection", Mute)
    station = Station(identity(1))
    await station.listener.start(HOST, 0)
    owner = Owner(station.port)
    async with linked(owner):
        await until(lambda: station.connections, "it is open")
        await until(lambda: owner.told == [Evidence.SILENT], "its silence is noticed")
        station.connections[0].send(b"sorry")
        await until(lambda: owner.told == [Evidence.SILENT, None], "it is heard again")
    assert len(station.connections) == 1, "the connection stood all the time"
    await station.listener.stop("done")


async def test_a_connection_that_stays_silent_is_given_up_and_that_stays_a_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a leader waits for a follower that hears nothing, or is not heard, for `replica_lag_max` (R4)."""
    monkeypatch.setattr("tidelog_broker.peers.listener.PeerConnection", Mute)
    monkeypatch.setattr("tidelog_broker.peers.connection.SILENCE_SECONDS_END", 0.7)
    station = Station(identity(1))
    await station.listener.start(HOST, 0)
    owner = Owner(station.port)
    async with linked(owner):
        await until(lambda: station.connections, "it is open")
        with swallowing() as owner.port:
            await until(lambda: owner.ends, "it is given up")
            asked = owner.asked
            await until(lambda: owner.asked > asked, "another one was dialed, in vain")
            assert owner.told == [Evidence.SILENT], "no reset: nobody knows that the broker is gone"
            owner.port = station.port
            await until(lambda: owner.told == [Evidence.SILENT, None], "it is back")
    assert owner.ends[0] == "nothing was heard for 0.7 s"
    assert len(station.connections) == 2
    await station.listener.stop("done")
