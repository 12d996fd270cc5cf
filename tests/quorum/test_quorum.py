"""Brokers form a quorum, lose its leader, come back, and nothing that was answered is lost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any

import pytest
from structlog.testing import capture_logs

from quorum.conftest import CLUSTER, Cluster, create
from support.hosts import HOST, free_port
from tidelog.errors import StreamExists, TidelogError, Unavailable
from tidelog.model import Listener
from tidelog_broker.core.metadata.commands import UnregisterBroker
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.errors import NotController
from tidelog_broker.membership.session import RegistrationRefused
from tidelog_broker.membership.wire import Call, Called, Done, Register
from tidelog_broker.quorum.transport import PEER_LISTENER

pytestmark = pytest.mark.slow


async def test_three_brokers_form_a_quorum_and_agree(cluster: Cluster) -> None:
    await cluster.quorum(3)

    assert {one.controller.voters for one in cluster.running} == {(0, 1, 2)}
    await cluster.eventually(lambda: {one.controller.leader for one in cluster.running} == {0})
    await cluster.eventually(lambda: len({one.controller.image.version for one in cluster.running}) == 1)
    first = cluster.brokers[0].controller.image
    assert sorted(first.brokers) == [0, 1, 2]
    assert all(one.controller.image == first for one in cluster.running)


async def test_two_brokers_are_one_voter_and_an_observer(cluster: Cluster) -> None:
    await cluster.grow(2)
    first, second = (one.controller for one in cluster.brokers)
    await cluster.eventually(lambda: second.image == first.image)
    assert first.active is not None
    first.active.keep_up(first.now_ms)  # once more, now that the observer has everything
    await first.confirm()

    assert {one.controller.voters for one in cluster.running} == {(0,)}
    assert sorted(cluster.brokers[1].controller.image.brokers) == [0, 1]


async def test_when_the_controller_is_killed_another_takes_over_and_nothing_is_lost(
    cluster: Cluster,
) -> None:
    await cluster.quorum(3)
    for number in range(20):
        await cluster.brokers[0].controller.change(create(f"s{number}"))

    await cluster.brokers[0].kill()
    gap = await cluster.eventually(lambda: cluster.controller is not None)
    successor = await cluster.elected()
    await successor.controller.change(create("after"))

    assert gap < 1.0
    assert set(successor.controller.image.names) == {"after", *(f"s{number}" for number in range(20))}


async def test_a_controller_that_stops_hands_over_before_it_goes(cluster: Cluster) -> None:
    await cluster.quorum(3)

    await cluster.brokers[0].stop()

    gap = await cluster.eventually(lambda: cluster.controller is not None)
    assert gap < 0.3, "well below an election's time"


async def test_a_killed_broker_is_fenced_and_comes_back_in_a_new_run(cluster: Cluster) -> None:
    await cluster.quorum(3)
    other = cluster.brokers[2]
    before = other.controller.incarnation

    await other.kill()
    image = cluster.brokers[0].controller
    await cluster.eventually(lambda: image.image.brokers[2].fenced)
    await other.start()

    await cluster.eventually(lambda: not image.image.brokers[2].fenced)
    assert image.image.brokers[2].incarnation == other.controller.incarnation != before


async def test_all_are_killed_at_once_and_what_was_answered_is_there_again(cluster: Cluster) -> None:
    await cluster.quorum(3)
    await cluster.brokers[0].controller.change(create("orders"))

    for broker in cluster.brokers:
        await broker.kill()
    for broker in cluster.brokers:
        await broker.launch()
    await asyncio.gather(*(broker.join() for broker in cluster.brokers))

    await cluster.elected()
    assert all("orders" in one.controller.image.names for one in cluster.running)


async def test_a_change_at_another_broker_names_the_controller(cluster: Cluster) -> None:
    await cluster.quorum(3)

    with pytest.raises(NotController) as raised:
        await cluster.brokers[1].controller.change(create("orders"))

    assert raised.value.controller == 0
    assert raised.value.definite
    assert raised.value.retriable
    assert raised.value.address == (HOST, cluster.brokers[0].port)


async def test_a_controller_without_a_majority_answers_nobody(cluster: Cluster) -> None:
    await cluster.quorum(3)
    alone = cluster.brokers[0]
    for broker in cluster.brokers[1:]:
        await broker.kill()

    await cluster.eventually(lambda: alone.controller.active is None)
    with pytest.raises(Unavailable):
        await alone.controller.change(create("orders"))

    await cluster.eventually(lambda: not alone.controller.session.session_good())


async def test_producer_ids_of_all_brokers_differ(cluster: Cluster) -> None:
    await cluster.quorum(3)

    given = [await one.controller.allocate_producer_id() for one in cluster.running for _ in range(3)]

    assert len(set(given)) == 9


async def test_an_observer_follows_and_takes_the_place_of_a_voter_that_is_gone_for_good(
    cluster: Cluster,
) -> None:
    await cluster.quorum(3)
    await cluster.add().start()
    controller = cluster.brokers[0].controller
    await controller.change(create("orders"))
    observer = cluster.brokers[3].controller
    await cluster.eventually(lambda: "orders" in observer.image.names)
    voters_before = observer.voters

    await cluster.brokers[2].kill()
    await controller.change(lambda image: UnregisterBroker(2))

    await cluster.eventually(lambda: observer.voters == (0, 1, 3))
    assert voters_before == (0, 1, 2)
    assert observer.session.session_good()


async def test_a_broker_that_is_unregistered_while_it_runs_does_not_come_back_by_itself(
    cluster: Cluster,
) -> None:
    await cluster.grow(2)

    await cluster.brokers[0].controller.change(lambda image: UnregisterBroker(1))
    session = cluster.brokers[1].controller.session
    await cluster.eventually(lambda: bool(session.over))
    # A heartbeat later: one that went on would register again then, and never end.
    await cluster.eventually(lambda: session._task is not None and session._task.done())

    assert sorted(cluster.brokers[0].controller.image.brokers) == [0]


async def test_a_broker_that_was_away_for_long_gets_the_image(cluster: Cluster) -> None:
    for _ in range(3):
        await cluster.add().start(snapshot_entries=20)
    await cluster.eventually(lambda: all(len(one.controller.voters) == 3 for one in cluster.running))
    await cluster.brokers[2].kill()
    for number in range(60):
        await cluster.brokers[0].controller.change(create(f"s{number}"))

    back = await cluster.brokers[2].start(snapshot_entries=20)

    await cluster.eventually(lambda: len(back.image.names) == 60)


async def test_a_start_ends_only_with_everything_that_was_committed_when_it_began(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a replica that an earlier run had would look as if it was new here, and be made again (2d, R6)."""
    await cluster.quorum(3)
    leader, back = cluster.brokers[0].controller, cluster.brokers[2]
    await back.kill()
    gate, confirm = asyncio.Event(), leader._changes.confirm

    async def held() -> None:
        await gate.wait()
        await confirm()

    monkeypatch.setattr(leader._changes, "confirm", held)
    controller = await back.launch()

    starting = asyncio.create_task(controller.start())
    await cluster.eventually(lambda: controller.leadership.current)
    await leader.change(create("late"))
    assert not starting.done()
    gate.set()
    await starting

    assert "late" in controller.image.names


async def test_a_second_broker_of_a_used_id_is_refused_with_a_sentence(cluster: Cluster) -> None:
    await cluster.quorum(3)
    twin = cluster.add(disk_number=2)
    cluster.brokers.remove(twin)
    twin.become(2, CLUSTER)

    try:
        with pytest.raises(RegistrationRefused, match="both ends are broker 2"):
            await twin.start()
    finally:
        await twin.stop()


async def test_a_broker_of_another_cluster_is_refused_with_a_sentence(cluster: Cluster) -> None:
    await cluster.grow(1)
    stranger = cluster.add()
    cluster.brokers.remove(stranger)
    stranger.become(1, b"another cluster!")

    try:
        with pytest.raises(RegistrationRefused, match="belongs to cluster"):
            await stranger.start()
    finally:
        await stranger.stop()


async def test_a_full_disk_of_the_controller_costs_its_leadership_and_nothing_else(cluster: Cluster) -> None:
    await cluster.quorum(3)
    first = cluster.brokers[0]
    first.disk.fail("pwrite", errno.ENOSPC, path="/raft/", times=10_000)

    perhaps = asyncio.create_task(first.controller.change(create("perhaps")))
    await cluster.eventually(lambda: any(one.controller.active is not None for one in cluster.brokers[1:]))
    successor = next(one for one in cluster.brokers[1:] if one.controller.active is not None)
    await successor.controller.change(create("after"))

    assert "after" in successor.controller.image.names
    assert first.host.failures == []
    assert not perhaps.done(), "it is not known yet what becomes of it"
    first.disk.faults.clear()
    with contextlib.suppress(TidelogError):
        await perhaps
    await cluster.eventually(lambda: first.controller.image == successor.controller.image)


async def test_many_changes_at_once_share_the_writes_of_every_voter(cluster: Cluster) -> None:
    await cluster.quorum(3)
    syncs: list[str] = []
    for broker in cluster.brokers:
        broker.disk.before = lambda one: syncs.append(one.name) if one.name == "datasync" else None

    controller = cluster.brokers[0].controller
    await asyncio.gather(*(controller.change(create(f"s{number}")) for number in range(200)))

    assert len(syncs) <= 12
    await cluster.eventually(lambda: all(len(one.controller.image.names) == 200 for one in cluster.brokers))


async def test_a_question_to_the_quorum_is_answered_only_by_one_who_leads_it(cluster: Cluster) -> None:
    await cluster.quorum(3)
    await cluster.brokers[0].controller.change(create("orders"))

    await cluster.brokers[0].controller.confirm()
    assert "orders" in cluster.brokers[0].controller.image.names
    with pytest.raises(NotController):
        await cluster.brokers[1].controller.confirm()


async def test_a_client_request_at_a_follower_is_done_by_the_controller_and_seen_here(
    cluster: Cluster,
) -> None:
    await cluster.quorum(3)
    served: list[tuple[str, bytes]] = []

    async def serve(rpc: str, body: bytes) -> bytes:
        served.append((rpc, body))
        await cluster.brokers[0].controller.change(create(body.decode()))
        return b"done"

    cluster.brokers[0].host.calls = serve

    called = await cluster.brokers[1].controller.ask(Call("Create", b"orders"), 5)

    assert isinstance(called, Called)
    assert (called.response, served) == (b"done", [("Create", b"orders")])
    follower = cluster.brokers[1].controller
    await follower.until(lambda: follower.image.version >= called.version, 5)
    assert "orders" in follower.image.names


async def test_errors_of_the_controller_keep_their_type(cluster: Cluster) -> None:
    await cluster.quorum(3)

    async def serve(rpc: str, body: bytes) -> bytes:
        raise StreamExists("it is there", name="orders")

    cluster.brokers[0].host.calls = serve

    with pytest.raises(StreamExists) as raised:
        await cluster.brokers[1].controller.ask(Call("Create", b"orders"), 5)

    assert raised.value.details == {"name": "orders"}


async def test_a_bug_in_the_upkeep_ends_neither_the_broker_nor_the_controller(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.grow(1)
    (only,) = cluster.brokers
    asked: list[object] = []

    def broken(*_: object) -> None:
        asked.append(1)
        raise ValueError("a bug")

    assert only.controller.active is not None
    monkeypatch.setattr(only.controller.active._upkeep, "next_command", broken)
    with capture_logs() as logs:
        await cluster.eventually(lambda: len(asked) > 1)

    assert only.host.failures == []
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "the controller's upkeep failed; it tries again"
    ]
    await only.controller.change(create("orders"))


async def test_a_broker_that_hears_no_answers_is_fenced_until_it_hears_them_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.quorum()
    asked, deaf = cluster.brokers[0].controller, cluster.brokers[2].controller
    with monkeypatch.context() as silence:
        silence.setattr(deaf.session, "session_good", lambda: False)
        await cluster.eventually(lambda: asked.image.brokers[2].fenced)
        assert not asked.image.brokers[1].fenced

    await cluster.eventually(lambda: not asked.image.brokers[2].fenced)


async def test_brokers_that_do_not_know_the_controller_do_not_ask_each_other_for_ever(
    cluster: Cluster,
) -> None:
    first, *others = (cluster.add() for _ in range(3))
    for broker in (first, *others):
        broker.port = free_port()
    joining = []
    for broker in others:
        await broker.launch()
        joining.append(asyncio.create_task(broker.join()))
    # Each has heard of the other one only, and believes, or has believed, that it may know.
    for one, other in (others, reversed(others)):
        asking = one.controller.transport.controller_client

        def knows(asking: Any = asking, other: Any = other) -> bool:
            return bool(asking.hint == other.id or other.id in asking._clueless)

        await cluster.eventually(knows)

    await first.start()

    await asyncio.gather(*joining)
    await cluster.eventually(lambda: all(len(one.controller.voters) == 3 for one in cluster.running))


async def test_a_broker_that_knows_nobody_answers_a_leader_that_finds_it_first(cluster: Cluster) -> None:
    first, second = cluster.add(), cluster.add()
    await first.start()
    second.port = free_port()
    listeners = (Listener(PEER_LISTENER, HOST, second.port),)
    registration = Registration(CLUSTER, second.id, b"r" * 16, second.directory_id, listeners)
    # As after a loss of power: it is registered, and nothing that it was told has reached its disk.
    assert isinstance(await first.controller.transport.answer(Register.of(registration)), Done)
    await first.stop()
    cluster.addresses = lambda: ()  # type: ignore[method-assign]
    await second.launch()
    joining = asyncio.create_task(second.join())

    await first.start()

    await joining
    assert second.controller.image.brokers[second.id].incarnation == second.controller.incarnation
