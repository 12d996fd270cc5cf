"""M1: three processes that start at once on empty disks become one cluster, and never another one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from support.broker import BrokerProcess
from support.hosts import HOST, free_ports
from support.trio import complete, joined
from support.waiting import until_true, wait_until
from tidelog.model import id_bytes

pytestmark = pytest.mark.slow

CLUSTER_ID = "6f1c0b52-3d8e-4a9b-9c53-0d7a2f4e8b11"


class Forming:
    """Brokers that are told where all of them are, and what is known of their cluster."""

    def __init__(self, folder: Path) -> None:
        self.marker = folder / "formation.json"
        ports = free_ports(3)
        seeds = ",".join(f"{HOST}:{port}" for port in ports)
        self.brokers = []
        for number, port in enumerate(ports):
            (folder / str(number)).mkdir()
            flags = (
                "--broker-id", str(number), "--peer-listener", f"{HOST}:{port}", "--seeds", seeds,
                "--formation", str(self.marker),
            )  # fmt: skip
            self.brokers.append(BrokerProcess(folder / str(number), flags=flags))

    def mark(self, state: str) -> None:
        """As a ConfigMap changes in a pod."""
        new = self.marker.with_suffix(".new")
        new.write_text(json.dumps({"state": state, "clusterId": CLUSTER_ID}))
        new.rename(self.marker)

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def come_back_empty(self, number: int) -> str:
        """Of a broker that is killed and loses its disk: what it says at its next start."""
        broker = self.brokers[number]
        broker.kill()
        shutil.rmtree(broker.data)
        broker.start()
        return broker.log()


@pytest.fixture
def forming(tmp_path: Path) -> Iterator[Forming]:
    one = Forming(tmp_path)
    yield one
    for broker in one.brokers:
        if broker.running:
            broker.kill()


async def test_three_empty_brokers_form_one_cluster_and_go_on_with_it_whoever_loses_a_disk(
    forming: Forming,
) -> None:
    forming.mark("never formatted")
    forming.start()
    addresses = [broker.address for broker in forming.brokers]
    async with tidelog.connect(addresses) as client:
        await joined(client)
        await client.create_stream("orders")
        async with client.producer("orders") as producer:
            await producer.send(b"x")
        found = await client.describe_cluster()
        assert found.cluster_id == id_bytes(CLUSTER_ID)
        assert found.voters == (0,), "nobody outside knows that there is a cluster"

        forming.mark("formatted")
        await complete(client, "orders")

        # Whatever the marker says: as long as others have data, they are joined.
        for state in ("formatted", "never formatted"):
            forming.mark(state)
            said = forming.come_back_empty(0)
            assert "joining a cluster" in said
            assert "forming a cluster" not in said
            await complete(client, "orders")
        assert (await client.describe_cluster()).cluster_id == id_bytes(CLUSTER_ID)


def test_a_broker_whose_cluster_was_formed_before_waits_for_the_others(forming: Forming) -> None:
    forming.mark("formatted")
    first, second, _ = forming.brokers
    first.launch()
    second.launch()

    wait_until(lambda: "the cluster was formed before" in first.log(), "it says what it waits for")
    wait_until(lambda: "no seed answers yet" in second.log(), "and so does another")

    assert [one.stop() for one in (first, second)] == [0, 0]
    assert not first.data.exists()


async def test_a_broker_alone_forms_its_cluster_and_keeps_it(tmp_path: Path) -> None:
    marker = tmp_path / "formation.json"
    alone = BrokerProcess(tmp_path, flags=("--broker-id", "0", "--formation", str(marker)))
    alone.launch()
    wait_until(lambda: "no seed answers yet" in alone.log(), "it waits for the marker")
    marker.write_text(json.dumps({"state": "never formatted", "clusterId": CLUSTER_ID}))
    alone.wait_ready()
    assert alone.stop() == 0
    marker.unlink()
    alone.start()

    async with tidelog.connect(alone.address) as client:

        async def is_the_one() -> bool:
            found = await client.describe_cluster()
            return (found.cluster_id, found.voters) == (id_bytes(CLUSTER_ID), (0,))

        await until_true(is_the_one, "its cluster")
    assert alone.stop() == 0


def test_a_marker_that_cannot_be_read_is_told_at_the_start(tmp_path: Path) -> None:
    marker = tmp_path / "formation.json"
    marker.write_text("formatted")
    broker = BrokerProcess(tmp_path, flags=("--broker-id", "0", "--formation", str(marker)))
    broker.launch()

    assert broker.wait() == 1
    assert "cannot be used" in broker.log().splitlines()[-1]
    assert not broker.data.exists()
