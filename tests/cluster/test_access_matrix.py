"""Each method of the API and each HTTP path, with each kind of credentials, on three brokers with TLS.

The methods are those of the .proto files: a new method fails here until it has a request and an expectation.
A stream that is hidden from the caller is called `secret`, and a stream that does not exist `absent`: what a
caller without permission is told of both must be the same (A8).
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import ssl
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor

import tidelog
import tidelog_proto
from support.api import batch
from support.certificates import Authority
from support.hosts import HOST
from support.trio import Trio, joined
from tidelog import AclRule, Operation, Resource, Tls
from tidelog.model.access import TOKEN_PREFIX
from tidelog_broker.tls.names import ClientName
from tidelog_proto import access_pb2 as access
from tidelog_proto import admin_pb2 as admin
from tidelog_proto import log_pb2 as log
from tidelog_proto import metadata_pb2 as metadata

pytestmark = pytest.mark.slow

HIDDEN, ABSENT, OWN = "secret", "absent", "own"

ABSENT_ID = bytes(range(16))

DENIED, UNAUTHENTICATED = "PERMISSION_DENIED", "UNAUTHENTICATED"

CALL_BROKE = "Internal error from Core"
"""What gRPC tells a client whose call ends while the client is writing, whatever the broker has said."""

TRIES_MAX = 20

TIMES = 200
"""How often a request is timed."""

TIME_RATIO_MAX = 1.5
"""How far the medians of the times may be apart; a real difference, such as a second look-up in the image or
a question to another broker, is larger than the noise of the machine."""


class Stream(NamedTuple):
    """What a request names."""

    name: str
    id: bytes


class Case(NamedTuple):
    """One method."""

    request: Callable[[Stream], Any]
    denied: str | None
    """The status for a principal without any rule; None: its answer is the same for both streams."""


def _part(stream: Stream) -> log.FetchPartition:
    return log.FetchPartition(stream_id=stream.id, earliest=True)


def _uncleanly(stream: Stream) -> admin.ElectLeadersRequest:
    request = admin.ElectLeadersRequest()
    request.unclean.name = stream.name
    request.unclean.partition = 0
    request.unclean.broker_id = 9
    return request


RULE = access.AclRule(
    principal="user:somebody", operation=access.ACL_PRODUCE, resource=access.ACL_STREAM, name="elsewhere"
)

CASES: dict[str, Case] = {
    "Resolve": Case(lambda one: metadata.ResolveRequest(names=[one.name], pattern=f"{one.name}.*"), None),
    "Watch": Case(lambda _: metadata.WatchRequest(), None),
    "Produce": Case(
        lambda one: log.ProduceRequest(request_id=1, stream_id=one.id, batch=batch(b"value")), None
    ),
    "Publish": Case(
        lambda one: log.PublishRequest(name=one.name, records=[log.PublishRecord()], timeout_ms=5000), DENIED
    ),
    "Fetch": Case(lambda one: log.FetchRequest(partitions=[_part(one)]), None),
    "Offsets": Case(lambda one: log.OffsetsRequest(partitions=[_part(one)]), None),
    "InitProducer": Case(lambda _: log.InitProducerRequest(), DENIED),
    "BeginSinkRun": Case(lambda _: log.BeginSinkRunRequest(), DENIED),
    "OpenSink": Case(
        lambda one: log.OpenSinkRequest(name="copy", run=1, batch_id=1, stream_id=one.id), "NOT_FOUND"
    ),
    "DescribeSink": Case(
        lambda one: log.DescribeSinkRequest(sink=1, run=1, stream_id=one.id, partitions=[0]), "NOT_FOUND"
    ),
    "CloseSink": Case(lambda _: log.CloseSinkRequest(name="sink of secret", run=1), "OK"),
    "DeleteRecords": Case(
        lambda one: log.DeleteRecordsRequest(stream_id=one.id, before_offset=0), "NOT_FOUND"
    ),
    "CreateStream": Case(lambda one: admin.CreateStreamRequest(name=one.name, validate_only=True), DENIED),
    "AlterStream": Case(
        lambda one: admin.AlterStreamRequest(name=one.name, expected_version=1 << 60, owner="x"), DENIED
    ),
    "DeleteStream": Case(
        lambda one: admin.DeleteStreamRequest(name=one.name, expected_version=1 << 60), DENIED
    ),
    "DescribeStream": Case(lambda one: admin.DescribeStreamRequest(name=one.name), DENIED),
    "ListStreams": Case(lambda one: admin.ListStreamsRequest(pattern=f"{one.name}.*"), None),
    "DescribeCluster": Case(lambda _: admin.DescribeClusterRequest(), DENIED),
    "DescribeReplicas": Case(lambda one: admin.DescribeReplicasRequest(name=one.name), DENIED),
    "ListReassignments": Case(lambda one: admin.ListReassignmentsRequest(names=[one.name]), DENIED),
    "Cordon": Case(lambda _: admin.CordonRequest(broker_id=9), DENIED),
    "Uncordon": Case(lambda _: admin.UncordonRequest(broker_id=9), DENIED),
    "Drain": Case(lambda _: admin.DrainRequest(broker_id=9), DENIED),
    "PrepareStop": Case(lambda _: admin.PrepareStopRequest(broker_id=9), DENIED),
    "CancelStop": Case(lambda _: admin.CancelStopRequest(broker_id=9), DENIED),
    "UnregisterBroker": Case(lambda _: admin.UnregisterBrokerRequest(broker_id=9), DENIED),
    "ElectLeaders": Case(_uncleanly, DENIED),
    "Reassign": Case(lambda _: admin.ReassignRequest(), DENIED),
    "CancelReassignment": Case(lambda _: admin.CancelReassignmentRequest(), DENIED),
    "Throttle": Case(lambda _: admin.ThrottleRequest(), DENIED),
    "AddVoter": Case(lambda _: admin.AddVoterRequest(broker_id=9), DENIED),
    "RemoveVoter": Case(lambda _: admin.RemoveVoterRequest(broker_id=9), DENIED),
    "WhoAmI": Case(lambda _: access.WhoAmIRequest(), "OK"),
    "CheckAccess": Case(
        lambda one: access.CheckAccessRequest(
            operation=access.ACL_PRODUCE, resource=access.ACL_STREAM, name=one.name
        ),
        "OK",
    ),
    "ChangeAcl": Case(lambda _: access.ChangeAclRequest(add=[RULE]), DENIED),
    "ListAcl": Case(lambda _: access.ListAclRequest(), DENIED),
    "CreateToken": Case(lambda _: access.CreateTokenRequest(hash=b"short", principal="user:x"), DENIED),
    "DeleteToken": Case(lambda _: access.DeleteTokenRequest(token_id="0"), DENIED),
    "SetQuota": Case(lambda _: access.SetQuotaRequest(quota=access.Quota(principal="x")), DENIED),
    "DeleteQuota": Case(lambda _: access.DeleteQuotaRequest(principal="user:x"), DENIED),
    "ListQuotas": Case(lambda _: access.ListQuotasRequest(), DENIED),
    "ListTokens": Case(lambda _: access.ListTokensRequest(), DENIED),
}


def methods() -> Iterator[MethodDescriptor]:
    """All that the .proto files have."""
    for module in pkgutil.iter_modules(tidelog_proto.__path__):
        if module.name.endswith("_pb2"):
            found: Any = importlib.import_module(f"tidelog_proto.{module.name}")
            for service in found.DESCRIPTOR.services_by_name.values():
                yield from service.methods


METHODS = {method.name: method for method in methods()}
assert len(METHODS) == len(list(methods())), "two services have an rpc of the same name"


def test_each_method_has_a_case() -> None:
    assert CASES.keys() == METHODS.keys()


class Answer(NamedTuple):
    """The status of a call, and what it was told."""

    status: str
    text: str


class Setup(NamedTuple):
    """The cluster, and credentials of each kind."""

    trio: Trio
    addresses: list[str]
    authorities: Path
    hidden: Stream
    tokens: dict[str, str]

    @asynccontextmanager
    async def brokers(self) -> AsyncIterator[list[Broker]]:
        """A connection to each."""
        credentials = grpc.ssl_channel_credentials(self.authorities.read_bytes())
        channels = [grpc.aio.secure_channel(address, credentials) for address in self.addresses]
        try:
            yield [Broker(channel) for channel in channels]
        finally:
            for channel in channels:
                await channel.close(None)


class Broker(NamedTuple):
    """A connection to a broker."""

    channel: grpc.aio.Channel

    async def call(self, method: str, request: Any, token: str) -> Answer:
        """The status and the first answer."""
        answer = Answer("INTERNAL", CALL_BROKE)
        for _ in range(TRIES_MAX):
            if CALL_BROKE in answer.text:
                answer = await call(self.channel, METHODS[method], request, token)
        return answer


async def call(channel: grpc.aio.Channel, method: MethodDescriptor, request: Any, token: str) -> Answer:
    path = f"/{method.containing_service.full_name}/{method.name}"
    parse = message_factory.GetMessageClass(method.output_type).FromString
    sent = (("authorization", f"Bearer {token}"),) if token else ()
    make = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    stub: Any = make(path, request_serializer=type(request).SerializeToString, response_deserializer=parse)
    try:
        if not method.server_streaming:
            return Answer("OK", str(await stub(request, metadata=sent, timeout=20)))
        running = stub(iter([request]) if method.client_streaming else request, metadata=sent, timeout=20)
        try:
            return Answer("OK", str(await running.read()))
        finally:
            running.cancel()
    except grpc.aio.AioRpcError as error:
        return Answer(error.code().name, error.details() or "")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("matrix")

    def flags(number: int) -> tuple[str, ...]:
        files = authority.issue_broker(folder / f"tls-{number}", number)
        return (
            *("--authentication", "required", "--superusers", "user:admin", "--peer-tls", "mutual"),
            *("--tls-certificate", str(files.certificate), "--tls-key", str(files.key)),
            *("--tls-authorities", str(files.authorities)),
            *("--listener", f"clients={HOST}:0?tls=mutual"),
        )

    trio = Trio(folder, flags_of=flags, tls="server", http_tls="server")
    admins = authority.issue(folder / "admin", str(ClientName("main", "admin")))
    assert admins.authorities is not None
    tls = Tls(authorities=admins.authorities, certificate=admins.certificate, key=admins.key)
    try:
        trio.start()
        yield asyncio.run(_prepared(trio, tls, admins.authorities))
    finally:
        trio.stop()


async def _prepared(trio: Trio, tls: Tls, authorities: Path) -> Setup:
    async with tidelog.connect(trio.brokers[0].listener("clients"), tls=tls) as client:
        await joined(client)
        hidden = await client.create_stream(HIDDEN)
        await client.create_stream(OWN)
        ends = datetime.now(UTC) + timedelta(seconds=1)
        await client.change_acl(
            add=[
                AclRule(principal="user:other", operation=operation, resource=Resource.STREAM, name=OWN)
                for operation in (Operation.PRODUCE, Operation.CONSUME)
            ]
        )
        tokens = {
            "expired": (await client.create_token("user:admin", expires=ends)).token,
            "nobody": (await client.create_token("user:nobody")).token,
            "other": (await client.create_token("user:other")).token,
            "admin": (await client.create_token("user:admin")).token,
            "none": "",
            "wrong": TOKEN_PREFIX + "0" * 43,
        }
        await asyncio.sleep((ends - datetime.now(UTC)).total_seconds() + 0.1)
    addresses = [broker.address for broker in trio.brokers]
    await _open_sink(addresses, authorities, tokens["admin"], hidden.stream_id)
    return Setup(trio, addresses, authorities, Stream(HIDDEN, hidden.stream_id), tokens)


async def _open_sink(addresses: list[str], authorities: Path, token: str, stream_id: bytes) -> None:
    """A sink of the hidden stream."""
    credentials = grpc.ssl_channel_credentials(authorities.read_bytes())
    async with grpc.aio.secure_channel(addresses[0], credentials) as channel:
        request = log.OpenSinkRequest(name="sink of secret", run=1, batch_id=0, stream_id=stream_id)
        await call(channel, METHODS["BeginSinkRun"], log.BeginSinkRunRequest(), token)
        await call(channel, METHODS["OpenSink"], request, token)


@pytest.mark.parametrize("method", METHODS)
async def test_without_valid_credentials_no_method_answers(setup: Setup, method: str) -> None:
    request = CASES[method].request(setup.hidden)
    async with setup.brokers() as brokers:
        answers = {
            who: [await broker.call(method, request, setup.tokens[who]) for broker in brokers]
            for who in ("none", "wrong", "expired")
        }

    for told in answers.values():
        assert [answer.status for answer in told] == [UNAUTHENTICATED] * 3
        assert not any(HIDDEN in answer.text for answer in told)


@pytest.mark.parametrize("method", METHODS)
async def test_without_permission_hidden_streams_are_like_absent_ones(setup: Setup, method: str) -> None:
    case, absent = CASES[method], Stream(ABSENT, ABSENT_ID)
    async with setup.brokers() as brokers:
        for broker in brokers:
            for who in ("nobody", "other"):
                told = [
                    _without_names(await broker.call(method, case.request(one), setup.tokens[who]), one)
                    for one in (setup.hidden, absent)
                ]

                assert told[0] == told[1]
                assert HIDDEN not in told[0].text
                if who == "nobody" and case.denied is not None:
                    assert told[0].status == case.denied


def _without_names(answer: Answer, stream: Stream) -> Answer:
    """Stripped of what the request itself named, and of numbers that every request moves."""
    shown = (
        "".join(f"\\{byte:03o}" for byte in stream.id),
        tidelog.model.id_text(stream.id),
        stream.id.hex(),
    )
    text = answer.text.replace(stream.name, "NAME")
    for one in shown:
        text = text.replace(one, "ID")
    lines = [
        line
        for line in text.splitlines()
        if not line.strip().startswith(("version:", "producer_id:", "run:"))
    ]
    return Answer(answer.status, "\n".join(lines))


@pytest.mark.parametrize("method", METHODS)
async def test_with_permission_each_method_answers(setup: Setup, method: str) -> None:
    request = CASES[method].request(setup.hidden)
    async with setup.brokers() as brokers:
        for broker in brokers:
            answer = await broker.call(method, request, setup.tokens["admin"])

            assert answer.status not in (UNAUTHENTICATED, DENIED), answer
            assert answer.status not in ("INTERNAL", "UNIMPLEMENTED"), answer


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/metrics", {"none": 401, "wrong": 401, "expired": 401, "nobody": 403, "other": 403, "admin": 200}),
        (
            "/debug/state",
            {"none": 401, "wrong": 401, "expired": 401, "nobody": 403, "other": 403, "admin": 200},
        ),
        ("/healthz", dict.fromkeys(["none", "wrong", "expired", "nobody", "admin"], 200)),
        ("/readyz", dict.fromkeys(["none", "wrong", "expired", "nobody", "admin"], 200)),
    ],
)
async def test_http_paths(setup: Setup, path: str, expected: dict[str, int]) -> None:
    for broker in setup.trio.brokers:
        url = f"https://{HOST}:{broker.http_port}{path}"
        found = {
            who: await asyncio.to_thread(_status, url, setup.tokens[who], setup.authorities)
            for who in expected
        }

        assert found == expected


def _status(url: str, token: str, authorities: Path) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    context = ssl.create_default_context(cafile=str(authorities))
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


async def test_the_time_of_a_refusal_tells_nothing_of_a_hidden_stream(setup: Setup) -> None:
    async with setup.brokers() as brokers:
        for method in ("DescribeStream", "Offsets", "Resolve"):
            ask = partial(call, brokers[0].channel, METHODS[method], token=setup.tokens["nobody"])
            seconds: tuple[list[float], list[float]] = ([], [])
            for _ in range(TIMES):
                for which, stream in enumerate((setup.hidden, Stream(ABSENT, ABSENT_ID))):
                    begun = time.perf_counter()
                    await ask(CASES[method].request(stream))
                    seconds[which].append(time.perf_counter() - begun)
            one, other = map(statistics.median, seconds)

            assert max(one, other) / min(one, other) < TIME_RATIO_MAX, (method, one, other)
