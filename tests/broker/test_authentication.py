"""A broker with authentication: who gets in, what each may do, and when that ends."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest

import tidelog
from support.broker import BrokerProcess
from support.certificates import Authority
from support.hosts import HOST
from tidelog import AclRule, Operation, ReaderOptions, Resource, Tls
from tidelog.errors import PermissionDenied, ResourceExhausted, StreamNotFound, Unauthenticated
from tidelog.model import Quota
from tidelog_broker.tls.files import TlsFiles
from tidelog_broker.tls.names import ClientName

ADMIN = str(ClientName("main", "admin"))

SOON_SECONDS = 10.0
"""Two seconds are promised; the machine of a test may be slow."""


def tls_of(files: TlsFiles) -> Tls:
    assert files.authorities is not None
    return Tls(authorities=files.authorities, certificate=files.certificate, key=files.key)


def rule(principal: str, operation: Operation, name: str = "orders", **more: bool) -> AclRule:
    return AclRule(principal=principal, operation=operation, resource=Resource.STREAM, name=name, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    made = Authority()
    made.issue_broker(folder / "tls", 0)
    return made


@pytest.fixture(scope="module")
def broker(folder: Path, authority: Authority) -> Iterator[BrokerProcess]:
    flags = (
        *("--authentication", "required", "--superusers", "user:admin"),
        *("--tls-certificate", str(folder / "tls" / "tls.crt")),
        *("--tls-key", str(folder / "tls" / "tls.key")),
        *("--tls-authorities", str(folder / "tls" / "ca.crt")),
        *("--listener", f"tokens={HOST}:0?tls=server"),
    )
    with BrokerProcess(folder, tls="mutual", http_tls="mutual", flags=flags) as running:
        yield running


@pytest.fixture(scope="module")
def tokens_address(broker: BrokerProcess) -> str:
    """The listener at which clients show no certificate."""
    return broker.listener("tokens")


@pytest.fixture
async def admin(broker: BrokerProcess, authority: Authority, tmp_path: Path) -> AsyncIterator[tidelog.Client]:
    files = authority.issue(tmp_path / "admin", ADMIN)
    async with tidelog.connect(broker.address, tls=tls_of(files)) as client:
        yield client
        await client.change_acl(remove=await client.list_acl())
        for token in await client.list_tokens():
            await client.delete_token(token.token_id)
        for quota in await client.list_quotas():
            await client.delete_quota(quota.principal)
        for stream in await client.list_streams():
            await client.delete_stream(stream.name)


@pytest.fixture
def known(folder: Path, authority: Authority) -> Tls:
    return Tls(authorities=folder / "tls" / "ca.crt")


async def user(admin: tidelog.Client, address: str, known: Tls, name: str, *rules: AclRule) -> tidelog.Client:
    """A client with a new token of this user, for whom these rules are added."""
    if rules:
        await admin.change_acl(add=rules)
    made = await admin.create_token(name)
    return tidelog.connect(address, tls=known, token=made.token, connect_timeout_s=5)


async def test_a_certificate_and_a_token_name_a_principal(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    async with await user(admin, tokens_address, known, "user:ann") as ann:
        assert (await admin.who_am_i())[:3] == ("user:admin", (), True)
        assert (await ann.who_am_i())[:3] == ("user:ann", (), False)


@pytest.mark.parametrize("token", ["", "tlt_unknown", "tll_unknown", "a.b.c", "other"])
async def test_without_valid_credentials_nothing_is_told(
    broker: BrokerProcess, tokens_address: str, known: Tls, token: str
) -> None:
    with pytest.raises(Unauthenticated, match=r"credentials|token"):
        await tidelog.connect(tokens_address, tls=known, token=token).open()


async def test_a_wrong_token_is_not_saved_by_a_valid_certificate(
    broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    """A2."""
    files = authority.issue(tmp_path / "admin", ADMIN)

    with pytest.raises(Unauthenticated, match="is not known to the cluster"):
        await tidelog.connect(broker.address, tls=tls_of(files), token="tlt_wrong").open()


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("tidelog://other/user/admin", "is for the cluster 'other'"),
        ("tidelog://other/broker/0", "is for the cluster 'other'"),
        ("tidelog://main/admin", "is not like"),
    ],
)
async def test_a_certificate_of_another_cluster_names_nobody_here(
    broker: BrokerProcess, authority: Authority, tmp_path: Path, uri: str, sentence: str
) -> None:
    files = authority.issue(tmp_path / "other", uri)

    with pytest.raises(Unauthenticated, match=sentence):
        await tidelog.connect(broker.address, tls=tls_of(files)).open()


async def test_a_principal_can_do_what_its_rules_allow_and_no_more(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    await admin.create_stream("orders")
    writer = await user(admin, tokens_address, known, "user:writer", rule("user:writer", Operation.PRODUCE))
    reader = await user(admin, tokens_address, known, "user:reader", rule("user:reader", Operation.CONSUME))

    async with writer, reader:
        async with writer.producer("orders") as producer:
            await producer.send(b"value")
        async with reader.reader("orders", follow=False) as records:
            assert [record.value async for record in records] == [b"value"]
        with pytest.raises(PermissionDenied, match="user:writer may not consume from stream 'orders'"):
            async with writer.reader("orders", follow=False) as records:
                [record async for record in records]
        with pytest.raises(PermissionDenied, match="user:reader may not produce to any stream"):
            async with reader.producer("orders") as producer:
                await producer.send(b"value")
        with pytest.raises(PermissionDenied, match="user:writer may not alter stream 'orders'"):
            await writer.alter_stream("orders", partitions=2)
        with pytest.raises(PermissionDenied, match="user:reader may not describe the cluster"):
            await reader.describe_cluster()
        with pytest.raises(PermissionDenied, match="user:writer may not administer the cluster"):
            await writer.change_acl(add=[rule("user:writer", Operation.ALL)])


async def test_hidden_streams_are_answered_like_streams_that_do_not_exist(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    """A8."""
    await admin.create_stream("secret")
    await admin.create_stream("orders")
    ann = await user(admin, tokens_address, known, "user:ann", rule("user:ann", Operation.CONSUME))

    async with ann:
        answers = []
        for name in ("secret", "absent"):
            with pytest.raises(PermissionDenied) as raised:
                await ann.describe_stream(name)
            with pytest.raises(PermissionDenied) as resolved:
                async with ann.producer(name) as producer:
                    await producer.send(b"value")
            answers.append([str(one.value).replace(name, "NAME") for one in (raised, resolved)])
        assert answers[0] == answers[1]
        assert [stream.name for stream in await ann.list_streams()] == ["orders"]


async def test_a_change_of_rules_applies_to_calls_that_run(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    """A9."""
    await admin.create_stream("orders")
    rules = [rule("user:ann", Operation.PRODUCE), rule("user:ann", Operation.CONSUME)]
    ann = await user(admin, tokens_address, known, "user:ann", *rules)

    async with ann, ann.producer("orders") as producer, ann.reader("orders") as reader:
        await producer.send(b"1")
        assert (await anext(reader)).value == b"1"
        await admin.change_acl(remove=rules[:1])
        with pytest.raises(PermissionDenied, match="may not produce"):
            await producer.send(b"2")
        await admin.change_acl(add=rules[:1], remove=rules[1:])
        await producer.send(b"3")
        with pytest.raises(PermissionDenied, match="may not consume"):
            await asyncio.wait_for(anext(reader), SOON_SECONDS)


async def test_a_reader_that_waits_is_told_at_once(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    """Although nothing happens in the stream, and long before the next heartbeat."""
    await admin.create_stream("orders")
    rules = [rule("user:ann", Operation.CONSUME), rule("user:ann", Operation.DESCRIBE)]
    ann = await user(admin, tokens_address, known, "user:ann", *rules)
    options = ReaderOptions(heartbeat_ms=60_000, silence_timeout_s=120)

    async with ann, ann.reader("orders", options=options) as reader:
        async with admin.producer("orders") as producer:
            await producer.send(b"1")
        assert (await anext(reader)).value == b"1"
        waiting = asyncio.create_task(anext(reader))
        await admin.change_acl(remove=rules[:1])
        with pytest.raises(PermissionDenied, match="may not consume from stream 'orders'"):
            await asyncio.wait_for(waiting, SOON_SECONDS)


async def test_a_principal_that_loses_all_rules_is_told_that_the_stream_is_gone(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    await admin.create_stream("orders")
    ann = await user(admin, tokens_address, known, "user:ann", rule("user:ann", Operation.CONSUME))

    async with ann, ann.reader("orders") as reader:
        waiting = asyncio.create_task(anext(reader))
        await asyncio.sleep(0)
        await admin.change_acl(remove=await admin.list_acl())
        async with admin.producer("orders") as producer:
            await producer.send(b"1")
        with pytest.raises((PermissionDenied, StreamNotFound)):
            await asyncio.wait_for(waiting, SOON_SECONDS)


async def test_a_deleted_token_ends_calls_that_run(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    """A3."""
    await admin.create_stream("orders")
    ann = await user(admin, tokens_address, known, "user:ann", rule("user:ann", Operation.CONSUME))

    async with ann, ann.reader("orders") as reader:
        waiting = asyncio.create_task(anext(reader))
        await asyncio.sleep(0)
        for token in await admin.list_tokens("user:ann"):
            await admin.delete_token(token.token_id)
        with pytest.raises(Unauthenticated, match="not known to the cluster"):
            await asyncio.wait_for(waiting, SOON_SECONDS)


async def test_a_token_expires_also_for_calls_that_run(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    await admin.create_stream("orders")
    await admin.change_acl(add=[rule("user:ann", Operation.CONSUME)])
    soon = datetime.datetime.now(UTC) + timedelta(seconds=3)
    made = await admin.create_token("user:ann", expires=soon)

    ann = tidelog.connect(tokens_address, tls=known, token=made.token)
    async with ann, ann.reader("orders") as reader:
        with pytest.raises(Unauthenticated, match="has expired"):
            await asyncio.wait_for(anext(reader), SOON_SECONDS)


async def test_a_client_follows_the_file_of_its_token(
    admin: tidelog.Client, tokens_address: str, known: Tls, tmp_path: Path
) -> None:
    await admin.create_stream("orders")
    await admin.change_acl(add=[rule("user:ann", Operation.PRODUCE), rule("user:ann", Operation.CONSUME)])
    first, second = await admin.create_token("user:ann"), await admin.create_token("user:ann")
    path = tmp_path / "token"
    path.write_text(first.token + "\n")

    ann = tidelog.connect(tokens_address, tls=known, token_file=path)
    async with ann, ann.producer("orders") as producer, ann.reader("orders") as reader:
        await producer.send(b"1")
        assert (await anext(reader)).value == b"1"
        (tmp_path / "new").write_text(second.token)
        (tmp_path / "new").replace(path)
        await admin.delete_token(first.description.token_id)
        for number in range(2, 6):
            await producer.send(b"%d" % number)
            assert (await anext(reader)).value == b"%d" % number
            # Long enough that the broker ends the calls with the first token in between.
            await asyncio.sleep(0.7)


async def test_calls_above_the_quota_are_refused(
    admin: tidelog.Client, broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    """A10; the administrator has no quota."""
    await admin.create_stream("orders")
    await admin.change_acl(add=[rule("user:ann", Operation.CONSUME)])
    await admin.set_quota(Quota(principal="*", calls_max=1))
    async with admin.producer("orders") as producer:
        await producer.send(b"1")
    files = authority.issue(tmp_path / "ann", str(ClientName("main", "ann")))
    ann = tidelog.connect(broker.address, tls=tls_of(files), retry_timeout_s=0.1)
    async with ann, ann.reader("orders") as reader:
        assert (await anext(reader)).value == b"1"
        with pytest.raises(ResourceExhausted, match="user:ann has 1 call on this broker"):
            await ann.who_am_i()
    async with tidelog.connect(broker.address, tls=tls_of(files)) as ann:
        assert (await ann.who_am_i()).principal == "user:ann"


async def test_writers_and_readers_above_the_quota_are_delayed_and_lose_nothing(
    admin: tidelog.Client, broker: BrokerProcess, tokens_address: str, known: Tls, authority: Authority,
    tmp_path: Path,
) -> None:  # fmt: skip
    rules = [rule("user:ann", Operation.PRODUCE), rule("user:ann", Operation.CONSUME)]
    await admin.create_stream("orders", partitions=1)
    await admin.set_quota(
        Quota(principal="user:ann", produce_bytes_per_second=256 << 10, fetch_bytes_per_second=256 << 10)
    )
    values = [bytes([number]) * (128 << 10) for number in range(4)]
    ann = await user(admin, tokens_address, known, "user:ann", *rules)

    async with ann:
        async with ann.producer("orders") as producer:
            for value in values:
                await producer.send(value)
        after_writing = await delayed(admin, broker, authority, tmp_path)
        for _ in range(2):
            async with ann.reader("orders", follow=False) as reader:
                assert [record.value async for record in reader] == values

    assert after_writing > 0
    assert await delayed(admin, broker, authority, tmp_path) > after_writing


async def test_a_writer_that_waits_for_its_quota_continues_when_it_is_deleted(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    await admin.create_stream("orders", partitions=1)
    await admin.set_quota(Quota(principal="user:ann", produce_bytes_per_second=1024))
    ann = await user(admin, tokens_address, known, "user:ann", rule("user:ann", Operation.PRODUCE))

    async with ann, ann.producer("orders") as producer:
        await flushed(producer, bytes(256 << 10))
        await admin.delete_quota("user:ann")
        # The broker does not read the call for four minutes, unless it follows the quota.
        await asyncio.wait_for(flushed(producer, b"more"), SOON_SECONDS)


async def flushed(producer: tidelog.Producer, value: bytes) -> None:
    await producer.send(value)
    await producer.flush()


async def test_a_reader_that_waits_for_its_quota_ends_when_its_rule_is_removed(
    admin: tidelog.Client, tokens_address: str, known: Tls
) -> None:
    """A9; with the quota it takes four minutes until its next record."""
    mine = rule("user:ann", Operation.CONSUME)
    await admin.create_stream("orders", partitions=1)
    await admin.set_quota(Quota(principal="user:ann", fetch_bytes_per_second=1024))
    async with admin.producer("orders") as producer:
        await flushed(producer, bytes(256 << 10))
    ann = await user(admin, tokens_address, known, "user:ann", mine)

    async with ann, ann.reader("orders") as reader:
        await anext(reader)
        await admin.change_acl(remove=[mine])
        with pytest.raises((PermissionDenied, StreamNotFound)):
            await asyncio.wait_for(anext(reader), SOON_SECONDS)


async def delayed(admin: tidelog.Client, broker: BrokerProcess, authority: Authority, folder: Path) -> float:
    """How long the requests of ann have waited."""
    files = authority.issue(folder / "metrics", ADMIN)
    page = await asyncio.to_thread(fetched, broker, "/metrics", files, "")
    line = 'tidelog_quota_delayed_seconds{principal="user:ann"} '
    return next(float(one.removeprefix(line)) for one in page[1].splitlines() if one.startswith(line))


async def test_http_knows_clients_by_token_and_by_certificate(
    broker: BrokerProcess, admin: tidelog.Client, authority: Authority, tmp_path: Path
) -> None:
    """An authority between the client and the known authority is no obstacle."""
    between = Authority(above=authority)
    nobody = authority.issue(tmp_path / "nobody", str(ClientName("main", "nobody")))
    admins = between.issue(tmp_path / "admins", ADMIN, trusted=authority.pem, between=between.pem)
    token = (await admin.create_token("user:admin")).token

    for path in ("/metrics", "/debug/state"):
        assert await http(broker, path, nobody) == 403
        assert await http(broker, path, nobody, "tlt_wrong") == 401
        assert await http(broker, path, nobody, token) == 200
        assert await http(broker, path, admins) == 200
    for path in ("/healthz", "/readyz"):
        assert await http(broker, path, nobody, "tlt_wrong") == 200


async def http(broker: BrokerProcess, path: str, files: TlsFiles, token: str = "") -> int:
    """The status of an answer."""
    return (await asyncio.to_thread(fetched, broker, path, files, token))[0]


def fetched(broker: BrokerProcess, path: str, files: TlsFiles, token: str) -> tuple[int, str]:
    """The status of an answer, and its text."""
    context = ssl.create_default_context(cafile=str(files.authorities))
    context.load_cert_chain(files.certificate, files.key)
    request = urllib.request.Request(f"https://{HOST}:{broker.http_port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


async def test_a_certificate_expires_also_for_calls_that_run(
    admin: tidelog.Client, broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    await admin.create_stream("orders")
    await admin.change_acl(add=[rule("user:ann", Operation.CONSUME)])
    name = str(ClientName("main", "ann"))
    files = authority.issue(tmp_path / "ann", name, lasts=timedelta(seconds=4))

    async with tidelog.connect(broker.address, tls=tls_of(files)) as ann, ann.reader("orders") as reader:
        with pytest.raises(Unauthenticated, match="certificate of this connection has expired"):
            await asyncio.wait_for(anext(reader), SOON_SECONDS)


async def test_prepare_stop_calls_as_the_broker_itself(
    admin: tidelog.Client, broker: BrokerProcess, tokens_address: str
) -> None:
    listener = ("--listener", f"tokens={tokens_address}?tls=server")
    done = await asyncio.to_thread(broker.command, "prepare-stop", *broker.flags[:-2], *listener)
    await admin.cancel_stop(0)

    assert done.stdout == "the broker can stop\n"


async def test_no_token_stands_in_the_log(admin: tidelog.Client, broker: BrokerProcess) -> None:
    made = await admin.create_token("user:ann")
    assert made.token not in broker.log()
    assert "tlt_" not in broker.log()
    assert "tll_" not in broker.log()
