"""From `helm install` to records, as a user does it."""

from __future__ import annotations

import time

import pytest

from e2e.conftest import Figures
from e2e.kube import Kube, condition, wait_until
from e2e.load.pod import pod_manifest
from e2e.release import NATS, REGISTRY, SERVER, TAG, Release, stream

pytestmark = pytest.mark.short

STREAM_SECONDS_MAX = 5.0

PUBLISH = f"""
import asyncio, nats, tidelog

async def main():
    client = await nats.connect("{NATS}")
    for number in range(100):
        await client.publish("hello.world", f"message {{number}}".encode())
    await client.flush()
    await client.close()
    async with tidelog.connect("{SERVER}") as log:
        reader = log.reader("hello", start="earliest")
        for number in range(100):
            record = await anext(reader)
            assert record.value == f"message {{number}}".encode(), record
    print("all 100 came back")

asyncio.run(main())
"""
"""Writes plain NATS messages and reads records, in another pod than those of the brokers and servers."""


def test_a_stream_is_ready_within_seconds(healthy: Release, figures: Figures) -> None:
    began = time.monotonic()
    healthy.kube.apply(stream("hello", subject="hello.>"))

    def lack() -> str:
        found = healthy.kube.get("streams.tidelog.io", "hello")
        return "" if condition(found, "Ready") == "True" else f"the Stream is not ready: {found}"

    wait_until(lack, 60)
    seconds = time.monotonic() - began
    figures.note("kubectl apply of a Stream to ready, seconds", seconds)
    assert seconds <= STREAM_SECONDS_MAX


def test_plain_nats_messages_are_read_as_records_in_another_pod(healthy: Release, kube: Kube) -> None:
    name = "hello"
    kube.apply(stream(name, subject="hello.>"))
    healthy.until_healthy()
    kube.kubectl("delete", "pod", name, "--ignore-not-found")
    kube.apply(pod_manifest(name, f"{REGISTRY}/client:{TAG}", ["-c", PUBLISH], files=False))

    def lack() -> str:
        pod = kube.get("pod", name) or {"status": {}}
        phase = pod["status"].get("phase")
        assert phase != "Failed", kube.kubectl("logs", name)
        return "" if phase == "Succeeded" else f"the pod is {phase}"

    wait_until(lack, 60)
    assert kube.kubectl("logs", name) == "all 100 came back\n"
    kube.kubectl("delete", "pod", name)


def test_helm_test_passes(healthy: Release, kube: Kube, figures: Figures) -> None:
    began = time.monotonic()

    said = kube.helm("test", "tidelog", "--timeout", "3m")

    figures.note("helm test, seconds", time.monotonic() - began)
    assert "Phase:          Succeeded" in said
