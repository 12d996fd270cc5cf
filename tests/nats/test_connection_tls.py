"""TLS: asked for by us or by the server, checked against the authority, refused when it is wrong."""

import asyncio
import random
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from support.hosts import HOST
from support.nats_server import NatsServer
from support.waiting import until
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.errors import NatsTimeout
from tidelog_broker.nats.settings import NatsSettings, parse_server

from .conftest import Connect

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a certificate for 127.0.0.1; its key lies beside it as key.pem."""
    directory = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=tidelog test", "-addext", f"subjectAltName=IP:{HOST}"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    command = ["openssl", "req", "-x509", "-days", "2", *key, "-out", "cert.pem", *subject]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return directory / "cert.pem"


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[NatsServer]:
    """A server that requires TLS."""
    files = f'cert_file: "{certificate}", key_file: "{certificate.with_name("key.pem")}"'
    with NatsServer(f"tls {{ {files} }}") as server:
        yield server


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_a_server_that_requires_tls_gets_it(
    tls_server: NatsServer, certificate: Path, connect: Connect, scheme: str
) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    connection = connect(tls_server.url.replace("nats://", f"{scheme}://"), tls=context)
    payloads: list[bytes] = []
    connection.subscribe(b"a", lambda batch: payloads.extend(payload for *_, payload in batch))
    await connection.wait_connected(5)
    connection.publish(b"a", b"x" * 300_000)
    await connection.flush(5)
    tls_server.restart()
    await until(lambda: connection.counters.connects == 2, "the second link")
    connection.publish(b"a", b"y")
    await connection.flush(5)

    assert [payload[:1] for payload in payloads] == [b"x", b"y"]
    await connection.close()


async def test_a_certificate_of_an_unknown_authority_is_refused(
    tls_server: NatsServer, connect: Connect
) -> None:
    connection = connect(tls_server.url)
    await until(lambda: "certificate" in connection.last_failure.lower(), "the refusal")
    with pytest.raises(NatsTimeout, match=r"(?i)certificate"):
        await connection.wait_connected(0.1)


async def test_a_server_without_tls_is_refused_when_we_ask_for_it(
    nats_server: NatsServer, connect: Connect
) -> None:
    connection = connect(nats_server.url.replace("nats://", "tls://u:p@"))
    await until(lambda: "does not offer TLS" in connection.last_failure, "the refusal")
    with pytest.raises(NatsTimeout, match="does not offer TLS"):
        await connection.wait_connected(0.1)


def test_tls_on_uvloop(tls_server: NatsServer, certificate: Path) -> None:
    async def scenario() -> None:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = NatsConnection(NatsSettings(servers=(tls_server.url,), tls=context), random.Random(1))
        connection.start()
        await connection.wait_connected(5)
        await connection.flush(5)
        await connection.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_a_discovered_server_is_met_with_the_same_demands() -> None:
    given = parse_server("tls://user:word@nats.example.org:4443")

    by_address = given.discovered("10.0.0.7:4222")
    assert (by_address.host, by_address.port, by_address.tls) == ("10.0.0.7", 4222, True)
    assert by_address.tls_name == "nats.example.org"
    assert by_address.credentials() == {"user": "user", "pass": "word"}
    assert given.discovered("[::1]:4222").host == "::1"
    assert given.discovered("other.example.org:4222").tls_name == "other.example.org"
