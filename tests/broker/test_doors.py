"""What stands around the services: rich errors, health, reflection, HTTP."""

import asyncio
import json
import re
import socket
import urllib.error
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from support.api import Api, Refusal, refusal
from support.broker import BrokerProcess
from support.hosts import HOST
from tidelog_proto import admin_pb2, log_pb2


async def test_a_refused_call_says_code_retriable_and_definite(api: Api) -> None:
    refused = await refusal(api.admin.DescribeStream(admin_pb2.DescribeStreamRequest(name="nobody")))
    assert refused.info.domain == "tidelog.io"
    assert refused.code == "STREAM_NOT_FOUND"
    assert refused.facts == {"name": "nobody", "retriable": "false", "definite": "true"}
    assert refused.retry is None


async def test_bytes_that_are_no_request_are_refused_and_the_broker_lives(api: Api) -> None:
    call = api.channel.unary_unary("/tidelog.v1.Admin/CreateStream")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"\xff\xff\xff")
    assert Refusal(caught.value).code == "INVALID_REQUEST"
    assert await api.create()


async def test_a_large_request_without_records_is_refused_before_it_is_parsed(api: Api) -> None:
    partitions = [log_pb2.FetchPartition(stream_id=bytes(1000))] * 1100
    refused = await refusal(api.log.Offsets(log_pb2.OffsetsRequest(partitions=partitions)))
    assert refused.code == "INVALID_REQUEST"
    assert "1048576" in refused.message
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await api.log.Fetch(log_pb2.FetchRequest(partitions=partitions)).read()
    assert Refusal(caught.value).code == "INVALID_REQUEST"


async def test_a_refused_request_is_let_go_at_once(tmp_path: Path) -> None:
    body = b"\x0a\x00" * (8 << 20)
    with BrokerProcess(tmp_path) as broker:
        async with Api(broker.address) as api:
            for rpc in ("Offsets", "Publish"):
                for _ in range(30):
                    with pytest.raises(grpc.aio.AioRpcError):
                        await api.channel.unary_unary(f"/tidelog.v1.Log/{rpc}")(body)
            status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    # Kept until a full collection, they would be a GiB.
    assert int(found[1]) < 500 << 10


async def test_a_request_of_very_many_parts_is_refused_before_it_is_parsed(api: Api) -> None:
    request = log_pb2.OffsetsRequest(partitions=[log_pb2.FetchPartition()] * 40_000)
    refused = await refusal(api.log.Offsets(request))
    assert refused.code == "INVALID_REQUEST"
    assert "fields" in refused.message


async def test_an_unknown_method_is_unimplemented(api: Api) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await api.channel.unary_unary("/tidelog.v1.Log/Dance")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("service", ["", "tidelog.v1.Metadata", "tidelog.v1.Log", "tidelog.v1.Admin"])
async def test_health_is_serving(api: Api, service: str) -> None:
    stub = health_pb2_grpc.HealthStub(api.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_services_and_describes_their_files(api: Api) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(api.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = {service.name for service in (await call.read()).list_services_response.service}
    assert {"tidelog.v1.Metadata", "tidelog.v1.Log", "tidelog.v1.Admin", "grpc.health.v1.Health"} <= listed
    await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="tidelog.v1.Log"))
    (data, *_) = (await call.read()).file_descriptor_response.file_descriptor_proto
    described = descriptor_pb2.FileDescriptorProto.FromString(data)
    assert [service.name for service in described.service] == ["Log"]
    assert {m.name for m in described.service[0].method} >= {"Produce", "Publish", "Fetch", "Offsets"}
    await call.done_writing()


async def test_the_pages_of_the_http_door(api: Api, broker: BrokerProcess) -> None:
    stream = await api.create()
    await api.publish(stream, b"x")

    def pages() -> tuple[str, str, str, str]:
        return (
            broker.get("/healthz"),
            broker.get("/readyz"),
            broker.get("/metrics"),
            broker.get("/debug/state"),
        )

    health, ready, metrics, state = await asyncio.to_thread(pages)
    assert (health, ready) == ("ok\n", "ready\n")
    labels = f'{{partition="0",stream="{stream.name}"}}'
    assert f"tidelog_log_end_offset{labels} 1.0" in metrics
    assert f"tidelog_high_watermark{labels} 1.0" in metrics
    assert 'tidelog_rpc_calls_total{code="OK",rpc="Publish"}' in metrics
    assert "tidelog_flush_seconds_bucket" in metrics
    appended = [line for line in metrics.splitlines() if line.startswith("tidelog_appended_records_total ")]
    assert float(appended[0].split()[1]) >= 1
    shown = json.loads(state)
    assert shown["ready"] == "yes"
    assert any(f"{stream.name}/0 leader" in line for line in shown["partitions"])


async def test_an_unknown_page_says_which_there_are(broker: BrokerProcess) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        await asyncio.to_thread(broker.get, "/etc/passwd")
    assert caught.value.code == 404
    assert b"/metrics" in caught.value.read()
    caught.value.close()


async def test_silent_http_connections_do_not_keep_others_out_of_grpc(
    api: Api, broker: BrokerProcess
) -> None:
    host, port = HOST, broker.http_port
    idle = [socket.create_connection((host, port)) for _ in range(100)]
    try:
        assert await api.create()
    finally:
        for one in idle:
            one.close()
    assert await asyncio.to_thread(broker.get, "/healthz") == "ok\n"
