"""M1: a broker with an empty data directory finds its cluster, or forms it where that never happened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from quorum.conftest import CLUSTER, Cluster
from support.hosts import HOST, free_port
from support.waiting import until
from tidelog.errors import InvalidRequest
from tidelog.model import id_text
from tidelog_broker.api.admin_brokers import BrokerRequests
from tidelog_broker.membership.formation import (
    MARKER_BYTES_MAX,
    Beginning,
    Marker,
    MarkerInvalid,
    OtherCluster,
    State,
    Waiting,
    beginning,
    next_step,
    read_marker,
    until_formatted,
)
from tidelog_broker.peers.hello import Hello, Identity
from tidelog_broker.peers.listener import PeerListener
from tidelog_proto import admin_pb2

OTHER = b"o" * 16
NEVER = Marker(State.NEVER_FORMATTED, CLUSTER)
FORMATTED = Marker(State.FORMATTED, CLUSTER)
PAUSE_SECONDS = 0.01


def write(path: Path, marker: Marker) -> None:
    """As a mount changes: at once."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"state": marker.state, "clusterId": id_text(marker.cluster_id)}))
    new.rename(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "formation.json"


# --- the file


@pytest.mark.parametrize("marker", [NEVER, FORMATTED])
def test_a_marker_is_read_as_it_was_written(path: Path, marker: Marker) -> None:
    write(path, marker)

    assert read_marker(path) == marker


def test_there_may_be_no_marker(path: Path) -> None:
    assert read_marker(path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"formatted",
        b"\xff\xfe",
        b"[]",
        b'{"state": "formatted"}',
        b'{"state": "formatted", "clusterId": "main"}',
        b'{"state": "unknown", "clusterId": "00000000-0000-0000-0000-000000000001"}',
        b'{"state": "formatted", "clusterId": "\xff"}',
        b" " * (MARKER_BYTES_MAX + 1),
    ],
)
def test_what_is_no_marker_is_told_with_what_would_be_one(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(MarkerInvalid) as raised:
        read_marker(path)

    assert str(path) in str(raised.value)
    assert 'write {"state": "never formatted", "clusterId": "<uuid>"}' in str(raised.value)


def test_a_folder_is_no_marker(path: Path) -> None:
    path.mkdir()

    with pytest.raises(MarkerInvalid, match="cannot be read: Is a directory"):
        read_marker(path)


# --- what follows from it


class Case(NamedTuple):
    broker: int
    found: bytes | None
    marker: Marker | None
    expected: Beginning | str
    """The reason to wait holds these words."""


CASES = [
    Case(0, None, NEVER, Beginning(CLUSTER, forms=True)),
    Case(0, None, FORMATTED, "the cluster was formed before"),
    Case(0, None, None, "no seed answers yet"),
    Case(1, None, NEVER, "no seed answers yet"),
    Case(1, None, FORMATTED, "no seed answers yet"),
    Case(0, CLUSTER, NEVER, Beginning(CLUSTER, forms=False)),
    Case(0, CLUSTER, FORMATTED, Beginning(CLUSTER, forms=False)),
    Case(2, CLUSTER, NEVER, Beginning(CLUSTER, forms=False)),
    Case(2, OTHER, None, Beginning(OTHER, forms=False)),
]


@pytest.mark.parametrize("case", CASES)
def test_only_broker_0_forms_and_only_where_nobody_has_data_and_nobody_ever_did(case: Case) -> None:
    step = next_step(case.broker, case.found, case.marker)

    if isinstance(step, Waiting):
        assert isinstance(case.expected, str)
        assert case.expected in step.reason
    else:
        assert step == case.expected


@pytest.mark.parametrize("marker", [NEVER, FORMATTED])
def test_seeds_of_another_cluster_than_the_markers_are_not_joined(marker: Marker) -> None:
    with pytest.raises(OtherCluster) as raised:
        next_step(1, OTHER, marker)

    assert id_text(OTHER) in str(raised.value)
    assert id_text(CLUSTER) in str(raised.value)


# --- asking


@asynccontextmanager
async def listening(cluster_id: bytes, port: int = 0) -> AsyncIterator[tuple[str, int]]:
    """A broker that says of which cluster it is; empty: of none yet."""

    def accept(hello: Hello) -> Any:
        class Nobody:
            def __getattr__(self, name: str) -> Callable[..., None]:
                return lambda *told: None

        return Nobody()

    listener = PeerListener(lambda: Identity(7, cluster_id, b"d" * 16, b"i" * 16), accept)
    await listener.start(HOST, port)
    try:
        yield HOST, listener.port
    finally:
        await listener.stop("the test is over")


async def begun(seeds: list[tuple[str, int]], broker: int, marker: Path | None) -> Beginning:
    return await asyncio.wait_for(beginning(seeds, broker, PAUSE_SECONDS, marker), 10)


async def warned(what: str, logged: list[Any], step: asyncio.Task[Beginning]) -> None:
    """Waits until a broker has said what it waits for."""
    await until(lambda: step.done() or any(what in one["event"] for one in logged), what)
    assert not step.done(), "it did not wait"


async def test_broker_0_forms_a_cluster_with_the_id_of_the_marker_when_nobody_is_there(path: Path) -> None:
    write(path, NEVER)
    seeds = [(HOST, free_port()), ("name.invalid", 9212)]

    assert await begun(seeds, 0, path) == Beginning(CLUSTER, forms=True)
    assert await begun([], 0, path) == Beginning(CLUSTER, forms=True)


async def test_a_broker_without_data_among_the_seeds_keeps_nobody_from_forming(path: Path) -> None:
    write(path, NEVER)
    async with listening(b"") as empty:
        assert await begun([empty], 0, path) == Beginning(CLUSTER, forms=True)


async def test_a_peer_with_data_is_joined_whatever_the_marker_says(path: Path) -> None:
    async with listening(CLUSTER) as peer, listening(b"") as empty:
        seeds = [(HOST, free_port()), empty, peer]
        for marker in (NEVER, FORMATTED):
            write(path, marker)
            assert await begun(seeds, 0, path) == Beginning(CLUSTER, forms=False)
        assert await begun(seeds, 1, None) == Beginning(CLUSTER, forms=False)


@pytest.mark.parametrize(("broker", "marker", "said"), [
    (0, FORMATTED, "the cluster was formed before"), (0, None, "no seed answers yet"),
    (1, NEVER, "no seed answers yet"),
])  # fmt: skip
async def test_whoever_may_not_form_says_once_what_it_waits_for_and_joins_who_comes(
    path: Path, broker: int, marker: Marker | None, said: str
) -> None:
    if marker is not None:
        write(path, marker)
    port = free_port()
    with capture_logs() as logged:
        step = asyncio.create_task(beginning([(HOST, port)], broker, PAUSE_SECONDS, path))
        await warned(said, logged, step)
        async with listening(CLUSTER, port):
            assert await asyncio.wait_for(step, 10) == Beginning(CLUSTER, forms=False)

    assert [one["log_level"] for one in logged if said in one["event"]] == ["warning"]


async def test_the_marker_is_read_anew_in_every_round(path: Path) -> None:
    with capture_logs() as logged:
        step = asyncio.create_task(beginning([], 0, PAUSE_SECONDS, path))
        await warned("no seed answers yet", logged, step)
        path.write_text("{")
        await warned("cannot be used", logged, step)
        write(path, NEVER)
        assert await asyncio.wait_for(step, 10) == Beginning(CLUSTER, forms=True)


async def test_a_marker_that_is_wrong_from_the_start_ends_the_broker(path: Path) -> None:
    path.write_text("yes")
    async with listening(CLUSTER) as peer:
        with pytest.raises(MarkerInvalid):
            await begun([peer], 0, path)


async def test_a_peer_of_another_cluster_ends_the_broker(path: Path) -> None:
    write(path, NEVER)
    async with listening(OTHER) as peer:
        with pytest.raises(OtherCluster):
            await begun([peer], 1, path)


# --- no second voter before that is known


async def test_that_a_cluster_was_formed_is_known_once_its_marker_says_so(path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, capture_logs() as logged:
        known = asyncio.create_task(until_formatted(path, CLUSTER, threads, PAUSE_SECONDS))

        async def settled(what: str) -> None:
            await until(lambda: known.done() or any(what in str(one) for one in logged), what)
            assert not known.done()

        path.write_text("half of")
        await settled("cannot be used")
        write(path, Marker(State.FORMATTED, OTHER))
        await settled("names another cluster")
        write(path, NEVER)
        write(path, FORMATTED)
        await asyncio.wait_for(known, 10)


@pytest.fixture
async def young() -> AsyncIterator[Cluster]:
    """A cluster of which nobody outside knows yet."""
    one = Cluster(formed=False)
    yield one
    await one.stop()


async def planned_again(cluster: Cluster) -> None:
    """The controller has had a look when everybody had everything."""
    first = cluster.brokers[0].controller
    await cluster.eventually(lambda: all(one.controller.image == first.image for one in cluster.running))
    assert first.active is not None
    first.active.keep_up(first.now_ms)
    await first.confirm()


async def refused(asking: Awaitable[object]) -> str:
    with pytest.raises(InvalidRequest) as raised:
        await asking
    return str(raised.value)


async def test_the_first_voter_stays_alone_until_the_cluster_is_known_to_be_formed(young: Cluster) -> None:
    await young.grow(3)
    await planned_again(young)
    assert {one.controller.voters for one in young.running} == {(0,)}

    young.brokers[0].controller.leadership.formed = True

    await young.eventually(lambda: all(one.controller.voters == (0, 1, 2) for one in young.running))


async def test_nobody_can_give_it_company_by_command_before(young: Cluster) -> None:
    await young.grow(3)
    first = young.brokers[0].controller
    requests = BrokerRequests(first)

    said = await refused(requests.add_voter(admin_pb2.AddVoterRequest(broker_id=1)))
    assert "formation" in said
    # To be done when that is possible.
    await requests.remove_voter(admin_pb2.RemoveVoterRequest(broker_id=0))
    await planned_again(young)
    assert first.voters == (0,)

    first.leadership.formed = True
    await young.eventually(lambda: young.brokers[1].controller.voters == (1,))


async def test_a_cluster_with_more_voters_keeps_them_whatever_the_marker_says(cluster: Cluster) -> None:
    await cluster.quorum(3)
    for broker in cluster.brokers:
        broker.controller.leadership.formed = False
    await planned_again(cluster)

    assert {one.controller.voters for one in cluster.running} == {(0, 1, 2)}
    await BrokerRequests(cluster.brokers[0].controller).add_voter(admin_pb2.AddVoterRequest(broker_id=1))
