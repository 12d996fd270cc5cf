"""Three brokers whose connections to each other use TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from cluster.conftest import STREAM, Writers, missing, read_all
from support.broker import BrokerProcess
from support.certificates import Authority
from support.hosts import HOST, free_ports
from support.trio import Trio, complete, joined
from support.waiting import until

pytestmark = pytest.mark.slow


def flags(folder: Path, peer_tls: str = "mutual") -> tuple[str, ...]:
    return (
        *("--peer-tls", peer_tls),
        *("--tls-certificate", str(folder / "tls.crt")),
        *("--tls-key", str(folder / "tls.key")),
        *("--tls-authorities", str(folder / "ca.crt")),
    )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority()
    for number in range(3):
        made.issue_broker(tmp_path / f"tls-{number}", number)
    return made


@pytest.fixture
def trio(tmp_path: Path, authority: Authority) -> Iterator[Trio]:
    one = Trio(tmp_path, flags_of=lambda number: flags(tmp_path / f"tls-{number}"))
    try:
        one.start()
        yield one
    finally:
        one.stop()


async def test_the_authority_changes_under_load_and_costs_no_record_and_no_error(
    trio: Trio, authority: Authority, tmp_path: Path
) -> None:
    """A broker is killed in the end, so that connections are made with the new certificates alone."""
    async with tidelog.connect(trio.addresses[0]) as client:
        await joined(client)
        await client.create_stream(STREAM)
        await complete(client, STREAM)
        leader = (await client.describe_stream(STREAM)).partitions[0].leader
    assert leader is not None
    new = Authority()
    both = authority.pem + new.pem
    other = trio.addresses[(leader + 1) % 3]

    async with Writers(other) as writers:
        for issuer, trusted in ((authority, both), (new, both), (new, new.pem)):
            for number in range(3):
                issuer.issue_broker(tmp_path / f"tls-{number}", number, trusted=trusted)
            await writers.acknowledged_more(100)
        trio.brokers[leader].kill()
        await writers.acknowledged_more(100)
        trio.brokers[leader].start()
        async with tidelog.connect(trio.addresses[leader]) as client:
            await complete(client, STREAM)
        await writers.acknowledged_more(100)

    assert writers.errors == []
    assert missing(writers.acknowledged, await read_all(other)) == []
    lines = trio.brokers[leader].get("/metrics").splitlines()
    assert "tidelog_certificate_files_unusable 0.0" in lines
    assert any(line.startswith("tidelog_certificate_expiration_timestamp_seconds ") for line in lines)


async def test_tls_is_switched_on_and_off_under_load_and_costs_no_record_and_no_error(
    trio: Trio, tmp_path: Path
) -> None:
    """Each step is a rolling restart: mutual, permissive, off, permissive, mutual."""
    async with tidelog.connect(trio.addresses[0]) as client:
        await joined(client)
        await client.create_stream(STREAM)
        await complete(client, STREAM)
    asked = [broker.flags[: -len(flags(tmp_path))] for broker in trio.brokers]

    async with Writers(trio.addresses[0]) as writers:
        for step in ("permissive", "off", "permissive", "mutual"):
            for number, broker in enumerate(trio.brokers):
                broker.stop()
                more = () if step == "off" else flags(tmp_path / f"tls-{number}", step)
                broker.flags = (*asked[number], *more)
                broker.start()
                async with tidelog.connect(broker.address) as client:
                    await complete(client, STREAM)
                await writers.acknowledged_more(20)

    assert writers.errors == []
    assert missing(writers.acknowledged, await read_all(trio.addresses[0])) == []


@pytest.mark.parametrize("why", ["plain", "authority", "cluster"])
async def test_a_stranger_does_not_join(trio: Trio, authority: Authority, tmp_path: Path, why: str) -> None:
    """A broker without TLS, one with a certificate of its own making, one of another cluster."""
    folder = tmp_path / "tls-3"
    match why:
        case "authority":
            Authority().issue_broker(folder, 3, trusted=authority.pem)
        case "cluster":
            authority.issue_broker(folder, 3, cluster="other")
    (port,) = free_ports(1)
    (tmp_path / "3").mkdir()
    asked = ("--broker-id", "3", "--peer-listener", f"{HOST}:{port}")
    seeds = ("--seeds", ",".join(f"{HOST}:{port}" for port in trio.ports))
    more = () if why == "plain" else flags(folder)
    stranger = BrokerProcess(tmp_path / "3", flags=(*asked, *seeds, *more))

    def is_refused() -> bool:
        return "no seed answers yet" in stranger.log() or not stranger.running

    stranger.launch()
    try:
        await until(is_refused, "it is refused")
        # The seeds have answered whatever it asked by now, and it has asked all three.
        async with tidelog.connect(trio.addresses[0]) as client:
            found = (await client.describe_cluster()).brokers
        assert sorted(one.broker_id for one in found) == [0, 1, 2]
        assert not (stranger.data / "meta.json").exists()
        if why == "cluster":
            assert (
                "of broker 3 names tidelog://other/broker/3 instead of tidelog://main/broker/3"
                in stranger.log()
            )
    finally:
        if stranger.running:
            stranger.kill()


def test_a_broker_does_not_start_with_the_certificate_of_another(tmp_path: Path) -> None:
    Authority().issue_broker(tmp_path / "tls", 2)
    broker = BrokerProcess(tmp_path, flags=flags(tmp_path / "tls"))

    with pytest.raises(
        AssertionError, match="names tidelog://main/broker/2, but the data directory belongs to broker 0"
    ):
        broker.__enter__()
