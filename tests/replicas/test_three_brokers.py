"""Three brokers, one stream: what is acknowledged is on all of them, and stays so whoever goes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog._connecting.status import error_from_message
from tidelog.errors import NotEnoughReplicas, NotLeader, TidelogError, Unavailable
from tidelog.model import Durability
from tidelog_broker.api.fetch_start import resolve_start
from tidelog_broker.api.log_service import LogService
from tidelog_broker.writing.append_requests import Acks
from tidelog_proto import log_pb2


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.PAGE_CACHE])
async def test_what_is_acknowledged_is_on_all_three_disks(cluster: Cluster, durability: Durability) -> None:
    await cluster.start()
    await cluster.create(durability=durability)

    places = [await appended(cluster[1].append(b"%d" % number)) for number in range(20)]

    assert [place.base_offset for place in places] == list(range(20))
    for node in cluster.nodes.values():
        log = node.partition().log
        assert log.end_offset == 20
        if durability is Durability.FSYNC:
            assert log.durable_offset == 20
    await cluster.become_equal()
    assert cluster[2].partition().replica.isr_size == 3


async def test_many_at_once_are_stored_in_order_and_once(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()

    told = [cluster[1].append(b"x" * 2000) for _ in range(500)]
    places = await asyncio.gather(*(appended(one) for one in told))

    assert [place.base_offset for place in places] == list(range(500))
    await cluster.become_equal()


async def test_only_the_leader_takes_appends_and_the_others_name_it(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()

    with pytest.raises(NotLeader) as refused:
        cluster[2].append(b"x")
    assert refused.value.details["leader"] == "1"


async def test_another_leader_goes_on_where_the_dead_one_was(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"before"))

    await cluster[1].kill()
    cluster.controller.change(leader=2, isr=(2, 3))
    await until(lambda: cluster[2].partition().leads, "the new leader")
    place = await appended(cluster[2].append(b"after"))

    assert (place.base_offset, place.leader_epoch) == (1, 2)
    await until(lambda: cluster[3].partition().log.end_offset == 2, "the other follower")
    await cluster[1].start()
    await until(lambda: 1 in cluster.controller.placed().isr, "the old leader joins")
    await cluster.become_equal()


async def test_records_of_a_deposed_leader_alone_are_cut_and_its_producer_gets_no_receipt(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"kept"))
    for other in (2, 3):
        await cluster[other].stop()
    told = cluster[1].append(b"lost", b"lost too")
    await until(lambda: cluster[1].partition().log.end_offset == 3, "it is written")

    for other in (2, 3):
        cluster[other].cut.add(1)
        await cluster[other].start()
    cluster.controller.change(leader=2)
    outcome = await asyncio.wait_for(told, 5)

    assert isinstance(outcome, TidelogError)
    assert not outcome.definite
    assert not cluster[1].partition().leads
    await until(lambda: cluster[2].partition().leads, "the new leader")
    place = await appended(cluster[2].append(b"other"))
    assert place.base_offset == 1
    await cluster.become_equal()


async def test_a_follower_that_fell_out_is_taken_in_again_once_it_has_everything(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await cluster[3].stop()
    cluster[1].links.refused(3)
    await until(lambda: cluster.controller.placed().isr == (1, 2), "it leaves the ISR")
    await asyncio.gather(*(appended(cluster[1].append(b"x" * 500)) for _ in range(50)))

    await cluster[3].start()

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it joins the ISR")
    await cluster.become_equal()


async def test_with_too_small_an_isr_what_is_new_is_refused_and_a_repeat_is_a_repeat(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.create()
    first = await appended(cluster[1].append(b"first", producer_id=7, sequence=0))
    cluster.controller.unreachable = True
    cluster.controller.change(isr=(1,))
    await until(lambda: cluster[1].partition().replica.isr_size == 1, "the image")

    new = await cluster[1].append(b"new", producer_id=7, sequence=1)
    again = await appended(cluster[1].append(b"first", producer_id=7, sequence=0))
    here = await appended(cluster[1].append(b"here", acks=Acks.LEADER))

    assert isinstance(new, NotEnoughReplicas)
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
    assert here.base_offset == 1
    cluster.controller.unreachable = False
    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "the ISR is whole again")
    await until(lambda: cluster[1].partition().replica.isr_size == 3, "the image")
    await appended(cluster[1].append(b"new", producer_id=7, sequence=1))


async def test_a_run_that_the_image_does_not_show_leads_nothing(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    known = cluster.controller.image.brokers[1]

    cluster.controller.register(1, b"another run 1234")
    await until(lambda: not cluster[1].partition().leads, "it steps down")
    cluster.controller.change(leader=1)
    await cluster[1].broker.applied(cluster.controller.image.version)
    assert not cluster[1].partition().leads

    cluster.controller.register(1, known.incarnation)
    cluster.controller.change(leader=1)
    await until(lambda: cluster[1].partition().leads, "it leads again")


async def test_a_new_leader_does_not_say_how_far_is_committed_before_it_knows(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    cluster.controller.unreachable = True
    await cluster[3].stop()
    told = cluster[1].append(b"x")
    await until(lambda: cluster[2].partition().log.end_offset == 1, "one follower has it")
    await cluster[1].kill()

    cluster.controller.change(leader=2, isr=(1, 2, 3))
    await until(lambda: cluster[2].partition().leads, "the new leader")
    leader = cluster[2].partition()
    wanted = log_pb2.FetchPartition(stream_id=STREAM, partition=0, latest=True)
    service = LogService(cluster[2].broker, cast(Any, cluster.controller))
    with pytest.raises(Unavailable):
        await resolve_start(cluster[2].broker, leader, wanted)
    everything = log_pb2.FetchPartition(stream_id=STREAM, partition=0, earliest=True)
    offsets = log_pb2.OffsetsRequest(partitions=[everything])
    (found,) = (await service.offsets(offsets)).partitions
    assert isinstance(error_from_message(found.error), Unavailable)
    with pytest.raises(Unavailable):
        await service.delete_records(log_pb2.DeleteRecordsRequest(stream_id=STREAM, partition=0))
    for other in (1, 3):
        await cluster[other].start()
    await until(lambda: leader.replica.may_answer_latest, "it knows")
    assert await resolve_start(cluster[2].broker, leader, wanted) == (1, 1)
    assert (await service.offsets(offsets)).partitions[0].high_watermark == 1
    assert told.done()


async def test_deleted_records_are_deleted_on_every_member_when_that_is_answered(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    for number in range(4):
        await appended(cluster[1].append(b"%d" % number))
    await cluster.become_equal()

    assert await cluster[1].broker.delete_records(cluster[1].partition(), 3) == 3

    assert [node.partition().log.start_offset for node in cluster.nodes.values()] == [3, 3, 3]


async def test_a_stop_waits_for_what_is_in_flight_and_leaves_a_clean_mark(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    told = [cluster[1].append(b"x" * 300) for _ in range(50)]

    await cluster[1].stop()

    places = await asyncio.gather(*(appended(one) for one in told))
    assert [place.base_offset for place in places] == list(range(50))
    assert (cluster[1].folder / "checkpoints" / "clean-stop").exists()


async def test_a_deleted_stream_goes_everywhere(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"x"))

    cluster.controller.publish(streams=cluster.controller.image.streams.remove(STREAM))

    for node in cluster.nodes.values():
        await node.broker.applied(cluster.controller.image.version)
        assert not node.broker.partitions
        assert not node.links.uplinks
        # Set aside, and perhaps gone already.
        left = [path.name for path in (node.folder / "streams").iterdir()]
        assert all(name.startswith(".deleted-") for name in left)


async def test_an_unclean_epoch_lets_followers_cut_what_was_committed(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    for number in range(5):
        await appended(cluster[1].append(b"%d" % number))
    await cluster.become_equal()
    for number in (1, 2):
        await cluster[number].stop()
    cluster[3].partition().replica.end_role()
    cluster[3].partition().log.cutter.truncate(2, lambda point: None)

    cluster.controller.change(leader=3, isr=(3,), unclean_epoch=2)
    for number in (1, 2):
        await cluster[number].start()

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "they follow")
    await cluster.become_equal()
    assert cluster[1].partition().log.end_offset == 2
    assert not cluster[1].lost


async def test_a_leader_in_doubt_says_so_and_continues_when_the_doubt_ends(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"before"))
    cluster.controller.unreachable = True
    leader = cluster[1].broker

    leader.session(False)
    await appended(cluster[1].append(b"all members are there"))
    for other in (2, 3):
        await cluster[other].stop()
    with pytest.raises(Unavailable, match="reaches neither"):
        cluster[1].append(b"refused")
    leader.session(True)
    waiting = cluster[1].append(b"in doubt")
    await until(lambda: cluster[1].partition().log.end_offset == 3, "it is written")
    leader.session(False)
    outcome = await asyncio.wait_for(waiting, 5)

    assert isinstance(outcome, TidelogError)
    assert not outcome.definite
    assert outcome.retriable
    leader.session(True)
    for other in (2, 3):
        await cluster[other].start()
    await appended(cluster[1].append(b"after"))
    await cluster.become_equal()


async def test_an_unclean_epoch_in_which_nobody_came_to_lead_is_told_of_by_the_next_leader(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.create()
    for number in range(5):
        await appended(cluster[1].append(b"%d" % number))
    await cluster.become_equal()
    for node in cluster.nodes.values():
        await node.stop()
    await cluster.start(3)
    cluster[3].partition().log.cutter.truncate(2, lambda point: None)
    cluster.controller.change(leader=None, isr=(3,))

    # Elected uncleanly in epoch 2, it restarts before it hears of that, and leads in epoch 3.
    placed = cluster.controller.placed()
    assert placed.leader_epoch == 1
    cluster.controller.change(leader_epoch=2, unclean_epoch=2)
    cluster.controller.change(leader=3)
    await cluster.start(1, 2)

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "they follow")
    await cluster.become_equal()
    assert (cluster.controller.placed().leader_epoch, cluster[1].partition().log.end_offset) == (3, 2)
    assert not cluster[1].lost


async def test_a_leader_whose_followers_are_connected_and_mute_is_in_doubt_after_a_second(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"before"))
    await cluster.become_equal()
    leader = cluster[1].broker
    with monkeypatch.context() as mute:
        for other in (2, 3):
            mute.setattr(cluster[other].links, "say", lambda *words: None)
        # The question that waits at the leader is still answered; what follows is not acknowledged.
        told = cluster[1].append(b"in doubt")
        leader.session(False)
        outcome = await asyncio.wait_for(told, 5)
        assert isinstance(outcome, TidelogError)
        assert not outcome.definite
        with pytest.raises(Unavailable, match="reaches neither"):
            cluster[1].append(b"refused")
    leader.session(True)
    await cluster[2].stop()
    await cluster[2].start()
    await cluster[3].stop()
    await cluster[3].start()

    await appended(cluster[1].append(b"after"))
