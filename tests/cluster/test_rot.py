"""A byte that rots on one broker's disk is found and put right, and nobody notices (2c)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from cluster.conftest import STREAM, read_all
from support.trio import Trio, complete, joined
from support.waiting import until

pytestmark = pytest.mark.slow

WAIT_SECONDS = 20.0
FLIPPED_AT = 3000


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trio]:
    monkeypatch.setenv("TIDELOG_SCRUB_INTERVAL_MS", "200")
    one = Trio(tmp_path)
    try:
        one.start()
        yield one
    finally:
        one.stop()


def healed(trio: Trio, number: int) -> bool:
    return "tidelog_healed_ranges_total 1.0" in trio.brokers[number].get("/metrics")


async def test_two_of_three_replicas_rot_in_one_place_and_the_third_heals_them(
    trio: Trio,
) -> None:
    async with tidelog.connect(trio.addresses[0]) as client:
        await joined(client)
        await client.create_stream(STREAM, partitions=1)
        async with client.producer(STREAM) as producer:
            for number in range(40):
                await producer.send(b"%d" % number * 200)
        await complete(client, STREAM)
    paths = [next(broker.data.glob("streams/*~*/0/*.log")) for broker in trio.brokers]
    whole = paths[2].read_bytes()

    for path in paths[:2]:
        with path.open("r+b") as file:
            file.seek(FLIPPED_AT)
            file.write(bytes([whole[FLIPPED_AT] ^ 1]))

    await until(
        lambda: healed(trio, 0) and healed(trio, 1),
        lambda: str([broker.log() for broker in trio.brokers[:2]]),
        WAIT_SECONDS,
    )
    assert [path.read_bytes() for path in paths] == [whole] * 3
    assert len(await read_all(trio.addresses[0])) == 40
    async with tidelog.connect(trio.addresses[0]) as client:
        assert (await client.describe_stream(STREAM)).partitions[0].leader == 2
