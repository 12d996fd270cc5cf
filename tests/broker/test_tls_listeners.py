"""Listeners for clients with TLS: who gets in, what the others are told, and renewals."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tidelog
from support.broker import BrokerProcess
from support.certificates import Authority
from support.hosts import HOST, free_ports
from tidelog import Tls
from tidelog.cli.local.processes import python_module
from tidelog.errors import Unauthenticated, Unavailable
from tidelog_broker.tls.files import TlsFiles

STREAM = "orders"

WITHDRAWN_SECONDS_MAX = 10.0
"""Two seconds are promised; the machine of a test may be slow."""


def flags(files: TlsFiles) -> tuple[str, ...]:
    return (
        *("--tls-certificate", str(files.certificate)),
        *("--tls-key", str(files.key)),
        *("--tls-authorities", str(files.authorities)),
    )


def tls_of(files: TlsFiles) -> Tls:
    assert files.authorities is not None
    return Tls(authorities=files.authorities, certificate=files.certificate, key=files.key)


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> TlsFiles:
    """Of the broker."""
    return authority.issue_broker(tmp_path / "tls", 0)


@pytest.fixture
def server(tmp_path: Path, files: TlsFiles) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, tls="server", flags=flags(files)) as broker:
        yield broker


@pytest.fixture
def mutual(tmp_path: Path, files: TlsFiles) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, tls="mutual", flags=flags(files)) as broker:
        yield broker


async def round_trip(client: tidelog.Client) -> None:
    await client.create_stream(STREAM)
    async with client.producer(STREAM) as producer:
        await producer.send(b"value")
    async with client.reader(STREAM, follow=False) as reader:
        assert [record.value async for record in reader] == [b"value"]


async def refused(address: str, tls: Tls | None) -> str:
    with pytest.raises(Unavailable) as raised:
        await tidelog.connect(address, tls=tls, connect_timeout_s=0.5).open()
    return str(raised.value)


async def test_a_client_that_trusts_the_authority_writes_and_reads(
    server: BrokerProcess, files: TlsFiles
) -> None:
    async with tidelog.connect(server.address, tls=Tls(authorities=files.authorities or "")) as client:
        await round_trip(client)


async def test_clients_that_cannot_connect_are_told_why(
    server: BrokerProcess, files: TlsFiles, tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority().issue(tmp_path / "stranger")
    known = Tls(authorities=files.authorities or "")

    assert "if its listener uses TLS, the client must do so, too" in await refused(server.address, None)
    assert "its certificate cannot be verified" in await refused(
        server.address, Tls(authorities=stranger.authorities or "")
    )
    authority.issue(tmp_path / "tls", hosts=["192.0.2.1"])
    assert "its certificate does not name this host" in await refused(server.address, known)


async def test_a_client_with_tls_is_told_that_the_broker_has_none(
    broker: BrokerProcess, files: TlsFiles
) -> None:
    assert "it does not use TLS" in await refused(broker.address, Tls(authorities=files.authorities or ""))


async def test_a_mutual_listener_wants_a_certificate_of_a_known_authority(
    mutual: BrokerProcess, files: TlsFiles, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority().issue(tmp_path / "stranger", trusted=authority.pem)
    known = authority.issue(tmp_path / "known")

    assert "it must show a certificate" in await refused(
        mutual.address, Tls(authorities=files.authorities or "")
    )
    assert "that the broker trusts" in await refused(mutual.address, tls_of(stranger))
    async with tidelog.connect(mutual.address, tls=tls_of(known)) as client:
        await round_trip(client)


async def test_authorities_of_clients_may_be_others_than_those_of_brokers(
    tmp_path: Path, files: TlsFiles, authority: Authority
) -> None:
    of_clients = Authority()
    client_files = of_clients.issue(tmp_path / "client", trusted=authority.pem)
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes(of_clients.pem)
    more = ("--tls-client-authorities", str(trusted))
    with BrokerProcess(tmp_path, tls="mutual", flags=(*flags(files), *more)) as broker:
        async with tidelog.connect(broker.address, tls=tls_of(client_files)) as client:
            await round_trip(client)
        assert "that the broker trusts" in await refused(
            broker.address, tls_of(authority.issue(tmp_path / "other"))
        )


async def test_the_authority_changes_under_load_and_no_call_fails(
    mutual: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    new = Authority()
    both = authority.pem + new.pem
    mine = authority.issue(tmp_path / "client")
    async with tidelog.connect(mutual.address, tls=tls_of(mine)) as client:
        await client.create_stream(STREAM)
        sent = 0
        async with client.producer(STREAM) as producer, client.reader(STREAM) as reader:

            async def go_on(seconds: float) -> None:
                nonlocal sent
                loop = asyncio.get_running_loop()
                end = loop.time() + seconds
                while loop.time() < end:
                    await producer.send(str(sent).encode())
                    sent += 1
                    record = await anext(reader)
                    assert record.value == str(sent - 1).encode()
                    await client.describe_stream(STREAM)

            await go_on(0.3)
            authority.issue_broker(tmp_path / "tls", 0, trusted=both)
            authority.issue(tmp_path / "client", trusted=both)
            await go_on(1.2)
            new.issue_broker(tmp_path / "tls", 0, trusted=both)
            new.issue(tmp_path / "client", trusted=both)
            await go_on(1.2)
            new.issue_broker(tmp_path / "tls", 0)
            await go_on(2.5)
    log = mutual.log()
    assert log.count("the TLS files changed; new connections use them") >= 3
    assert "internal error" not in log


async def test_calls_with_a_withdrawn_certificate_end_and_new_ones_are_refused(
    mutual: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    """The client does not renew its files, and its connection stays open."""
    new = Authority()
    mine = authority.issue(tmp_path / "client", trusted=authority.pem + new.pem)
    async with tidelog.connect(mutual.address, tls=tls_of(mine)) as client:
        await client.create_stream(STREAM)
        reader = client.reader(STREAM)
        waiting = asyncio.create_task(anext(reader))
        await client.describe_stream(STREAM)

        new.issue_broker(tmp_path / "tls", 0)

        with pytest.raises(Unauthenticated, match="connect again with a certificate"):
            await asyncio.wait_for(waiting, WITHDRAWN_SECONDS_MAX)
        with pytest.raises(Unauthenticated):
            await client.describe_stream(STREAM)
        await reader.aclose()


async def test_a_certificate_below_an_intermediate_stays_trusted_while_its_root_is(
    mutual: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    between = Authority(above=authority)
    mine = between.issue(tmp_path / "client", trusted=authority.pem, between=between.pem)
    async with tidelog.connect(mutual.address, tls=tls_of(mine)) as client:
        await client.create_stream(STREAM)

        authority.issue_broker(tmp_path / "tls", 0, trusted=Authority().pem + authority.pem)

        loop = asyncio.get_running_loop()
        end = loop.time() + 2.5
        while loop.time() < end:
            await client.describe_stream(STREAM)


async def test_a_stranger_cannot_stay_by_sending_a_certificate_of_the_new_authority(
    mutual: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    new = Authority()
    theirs = new.issue(tmp_path / "other").certificate.read_bytes()
    mine = authority.issue(tmp_path / "client", between=theirs + new.pem)
    async with tidelog.connect(mutual.address, tls=tls_of(mine)) as client:
        await client.create_stream(STREAM)

        new.issue_broker(tmp_path / "tls", 0)

        async def until_refused() -> None:
            while True:
                await client.describe_stream(STREAM)

        with pytest.raises(Unauthenticated):
            await asyncio.wait_for(until_refused(), WITHDRAWN_SECONDS_MAX)


def test_a_listener_with_tls_needs_its_files(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, tls="server")

    with pytest.raises(AssertionError, match=r"uses TLS, but tls_certificate is empty; give the path"):
        broker.__enter__()


@pytest.mark.parametrize("kind", ["server", "mutual"])
def test_http_uses_tls_and_renewed_certificates(
    kind: str, tmp_path: Path, files: TlsFiles, authority: Authority
) -> None:
    mine = authority.issue(tmp_path / "client")
    (port,) = free_ports(1)
    url = f"https://{HOST}:{port}/readyz"
    bare = ssl.create_default_context(cadata=authority.pem.decode())
    known = ssl.create_default_context(cadata=authority.pem.decode())
    known.load_cert_chain(mine.certificate, mine.key)
    with BrokerProcess(tmp_path, flags=(*flags(files), "--http", f"{HOST}:{port}?tls={kind}")):
        assert fetched(url, known) == "ready\n"
        if kind == "server":
            assert fetched(url, bare) == "ready\n"
        else:
            with pytest.raises(OSError, match=r"(?i)certificate required|reset|closed|eof|pipe"):
                fetched(url, bare)
        with pytest.raises(OSError, match=r"reset|closed|BadStatusLine|Remote end"):
            fetched(url.replace("https", "http"), known)

        new = Authority()
        new.issue_broker(tmp_path / "tls", 0, trusted=new.pem + authority.pem)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetched(url, known)
        known.load_verify_locations(cadata=new.pem.decode())
        assert fetched(url, known) == "ready\n"


def test_connections_that_never_end_their_handshake_keep_no_probe_out(
    tmp_path: Path, files: TlsFiles, authority: Authority
) -> None:
    (port,) = free_ports(1)
    known = ssl.create_default_context(cadata=authority.pem.decode())
    more = ("--http", f"{HOST}:{port}?tls=server", "--http-connections-max", "8")
    with BrokerProcess(tmp_path, flags=(*flags(files), *more)), ExitStack() as silent:
        for _ in range(20):
            silent.enter_context(socket.create_connection((HOST, port)))
        for _ in range(5):
            assert fetched(f"https://{HOST}:{port}/healthz", known) == "ok\n"


def fetched(url: str, context: ssl.SSLContext) -> str:
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:
        return str(answer.read().decode())


def command_line(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = python_module("tidelog.cli", *arguments)
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=60)


def test_the_command_line_connects_with_tls(
    mutual: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    mine = authority.issue(tmp_path / "client")
    files = {"AUTHORITIES": mine.authorities, "CERTIFICATE": mine.certificate, "KEY": mine.key}
    env = {f"TIDELOG_CLIENT_TLS_{name}": str(path) for name, path in files.items()}

    made = command_line("stream", "create", STREAM, "--server", mutual.address, env=env)
    bare = command_line("stream", "list", "--server", mutual.address, env={})
    listener = f"internal={mutual.address}?tls=mutual"
    prepared = mutual.command("prepare-stop", "--broker-id", "0", "--listener", listener, *flags(mine))

    assert (made.returncode, made.stderr) == (0, "")
    assert re.search("it closed the connection; if its listener uses TLS", bare.stderr)
    assert prepared.returncode == 0
