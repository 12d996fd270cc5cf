"""TLS between brokers, over real sockets: which certificates are taken, and when files are read again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from peers.conftest import Recorded, Station, identity
from support.certificates import DAY, Authority
from support.hosts import HOST
from support.waiting import until
from tidelog_broker.peers import connection as peer_connection
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.errors import PeerError, WrongPeer
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.peers.listener import PeerListener
from tidelog_broker.tls.credentials import Credentials


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def station(authority: Authority, tmp_path: Path) -> AsyncIterator[Station]:
    """Broker 1 of the cluster `main`."""
    made = Station(identity(1))
    tls = Credentials(authority.issue_broker(tmp_path / "1", 1))
    made.listener = PeerListener(lambda: made.me, made._accept, tls=tls)
    await made.listener.start(HOST, 0)
    yield made
    await made.listener.stop("the test is over")
    await asyncio.gather(*(connection.end("the test is over") for connection in made.dialed))


async def call(station: Station, tls: Credentials | None, broker_id: int = 2) -> PeerConnection:
    connection = await dial(
        HOST,
        station.port,
        lambda: identity(broker_id),
        ConnectionKind.CONTROL,
        target=1,
        timeout_s=5.0,
        tls=tls,
    )
    station.dialed.append(connection)
    return connection


async def test_brokers_of_one_cluster_connect_and_large_frames_arrive(
    station: Station, authority: Authority, tmp_path: Path
) -> None:
    mine = Recorded()
    connection = await call(station, Credentials(authority.issue_broker(tmp_path / "2", 2)))
    connection.serve(mine)
    await until(lambda: station.connections, "the other end is served")

    large = bytes(range(256)) * 40_000
    connection.send(b"large", large[:100], memoryview(large)[100:])
    station.connections[0].send(b"answer", large)
    await until(lambda: station.frames and mine.frames, "both frames arrive")

    assert (station.frames, mine.frames) == ([(b"large", large)], [(b"answer", large)])
    secured = connection._transport.get_extra_info("ssl_object")  # type: ignore[union-attr]
    assert secured.version() == "TLSv1.3"


async def test_a_broker_without_tls_is_not_served(station: Station) -> None:
    with pytest.raises(PeerError):
        await call(station, None)
    assert station.hellos == []


@pytest.mark.parametrize("why", ["broker", "cluster", "expired", "authority"])
async def test_the_listener_takes_no_other_certificate(
    station: Station, authority: Authority, tmp_path: Path, why: str
) -> None:
    """Of another broker, of another cluster, one that has ended, one of a foreign authority."""
    folder = tmp_path / "2"
    match why:
        case "broker":
            files = authority.issue_broker(folder, 3)
        case "cluster":
            files = authority.issue_broker(folder, 2, cluster="other")
        case "expired":
            files = authority.issue_broker(folder, 2, lasts=-DAY)
        case _:
            files = Authority().issue_broker(folder, 2, trusted=authority.pem)

    with pytest.raises(PeerError):
        await call(station, Credentials(files))

    assert station.hellos == []
    assert station.connections == []


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        (
            "broker",
            "the certificate of broker 1 names tidelog://main/broker/3 instead of tidelog://main/broker/1",
        ),
        ("expired", "its certificate cannot be verified (certificate has expired)"),
        ("authority", "its certificate cannot be verified (unable to get local issuer certificate)"),
    ],
)
async def test_the_dialer_takes_no_other_certificate_and_says_why(
    authority: Authority, tmp_path: Path, why: str, sentence: str
) -> None:
    broker = 3 if why == "broker" else 1
    issuer = Authority() if why == "authority" else authority
    files = issuer.issue_broker(
        tmp_path / "1", broker, lasts=-DAY if why == "expired" else DAY, trusted=authority.pem
    )
    station = Station(identity(1))
    station.listener = PeerListener(lambda: station.me, station._accept, tls=Credentials(files))
    await station.listener.start(HOST, 0)
    tls = Credentials(authority.issue_broker(tmp_path / "2", 2))

    with pytest.raises(WrongPeer) as refused:
        await call(station, tls)

    assert sentence in str(refused.value)
    await station.listener.stop("the test is over")


async def test_the_authority_changes_without_a_lost_connection(
    station: Station, authority: Authority, tmp_path: Path
) -> None:
    """First both authorities are trusted everywhere, then the certificates change, then the old authority
    goes. Until then the first connection stays."""
    new = Authority()
    both = authority.pem + new.pem
    tls = Credentials(authority.issue_broker(tmp_path / "2", 2))
    first = await call(station, tls)
    mine = Recorded()
    first.serve(mine)

    for issuer in (authority, new):
        for broker in (1, 2):
            issuer.issue_broker(tmp_path / str(broker), broker, trusted=both)
            (await call(station, tls)).abort("it was only tried")
    first.send(b"still open")
    await until(lambda: (b"still open", b"") in station.frames, "the first connection still works")
    assert mine.ends == []

    for broker in (1, 2):
        new.issue_broker(tmp_path / str(broker), broker)
        (await call(station, tls)).abort("it was only tried")
    await until(lambda: bool(mine.ends), "the first connection ends")
    old = Credentials(authority.issue_broker(tmp_path / "old", 2, trusted=both))
    with pytest.raises(PeerError):
        await call(station, old)


async def test_files_that_do_not_fit_together_are_not_used(
    station: Station, authority: Authority, tmp_path: Path
) -> None:
    """A certificate whose key has not arrived yet, and one of another broker."""
    tls = Credentials(authority.issue_broker(tmp_path / "2", 2))
    other = authority.issue_broker(tmp_path / "other", 2)
    (tmp_path / "2" / "tls.crt").write_bytes(other.certificate.read_bytes())
    (await call(station, tls)).abort("it was only tried")

    authority.issue_broker(tmp_path / "2", 3)

    assert (await call(station, tls)).peer == identity(1)
    assert str(tls.name) == "tidelog://main/broker/2"
    assert tls.files.unusable

    authority.issue_broker(tmp_path / "2", 2)
    await call(station, tls)
    assert not tls.files.unusable


async def test_a_handshake_that_never_ends_is_cut_off(station: Station) -> None:
    reader, writer = await asyncio.open_connection(HOST, station.port)
    writer.write(b"\x16\x03\x01")

    assert await asyncio.wait_for(reader.read(), 10) == b""

    writer.close()
    assert station.listener._connections == {}


@pytest.fixture
async def permissive(authority: Authority, tmp_path: Path) -> AsyncIterator[Station]:
    """Broker 1, which takes connections with and without TLS."""
    made = Station(identity(1))
    tls = Credentials(authority.issue_broker(tmp_path / "1", 1), permissive=True)
    made.listener = PeerListener(lambda: made.me, made._accept, tls=tls)
    await made.listener.start(HOST, 0)
    yield made
    await made.listener.stop("the test is over")
    await asyncio.gather(*(connection.end("the test is over") for connection in made.dialed))


async def test_a_permissive_broker_is_reached_with_and_without_tls(
    permissive: Station, authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue_broker(tmp_path / "2", 2)

    plain = await call(permissive, None)
    mutual = await call(permissive, Credentials(files))
    equal = await call(permissive, Credentials(files, permissive=True))

    assert [one.encrypted for one in (plain, mutual, equal)] == [False, True, True]
    for one in (plain, mutual, equal):
        one.serve(Recorded())
        one.send(b"hello")
    await until(lambda: len(permissive.frames) == 3, "all three are served")


async def test_a_permissive_broker_reaches_a_broker_without_tls(authority: Authority, tmp_path: Path) -> None:
    station = Station(identity(1))
    station.listener = PeerListener(lambda: station.me, station._accept)
    await station.listener.start(HOST, 0)

    connection = await call(station, Credentials(authority.issue_broker(tmp_path / "2", 2), permissive=True))

    assert not connection.encrypted
    connection.abort("the test is over")
    await station.listener.stop("the test is over")


@pytest.mark.parametrize("why", ["broker", "authority"])
async def test_a_permissive_broker_takes_no_wrong_certificate(
    permissive: Station, authority: Authority, tmp_path: Path, why: str
) -> None:
    """Nor does the dialer then try without TLS: the mistake is found before TLS becomes mutual."""
    if why == "broker":
        files = authority.issue_broker(tmp_path / "2", 3)
    else:
        files = Authority().issue_broker(tmp_path / "2", 2)

    with pytest.raises(PeerError):
        await call(permissive, Credentials(files, permissive=True))

    assert permissive.connections == []


async def test_a_permissive_broker_cuts_off_a_connection_without_first_bytes(permissive: Station) -> None:
    ends = [await asyncio.open_connection(HOST, permissive.port) for _ in range(3)]
    ends[1][1].write(b"\x16\x03")
    ends[2][1].write(b"\x16\x03\x01")
    connection = await call(permissive, None)

    for reader, writer in ends:
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    connection.abort("the test is over")


async def test_a_permissive_listener_stops_while_connections_have_sent_nothing(permissive: Station) -> None:
    reader, writer = await asyncio.open_connection(HOST, permissive.port)
    await call(permissive, None)

    await permissive.listener.stop("the test goes on")

    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


async def test_a_connection_ends_when_its_authority_is_withdrawn(
    station: Station, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 2 keeps its old certificate; broker 3 has a new one, and its connection stays."""
    # All ends share a loop, which may stall.
    monkeypatch.setattr(peer_connection, "SILENCE_SECONDS_END", 60.0)
    new = Authority()
    both = authority.pem + new.pem
    heard = {2: Recorded(), 3: Recorded()}
    for broker, issuer in ((2, authority), (3, new)):
        authority.issue_broker(tmp_path / "1", 1, trusted=both)
        tls = Credentials(issuer.issue_broker(tmp_path / str(broker), broker, trusted=both))
        (await call(station, tls, broker)).serve(heard[broker])

    authority.issue_broker(tmp_path / "1", 1, trusted=new.pem)

    await until(lambda: bool(heard[2].ends), "the connection with the old certificate ends")
    reasons = [one._reason for one in station.connections if one.closed]
    assert reasons == ["the authority of its certificate is not trusted any more"]
    assert heard[3].ends == []
