"""The bound on bytes that many calls hold together: turns, idle leases, and that every way out gives back."""

import asyncio
from concurrent.futures import Future

from tidelog_broker.limits.byte_budget import ByteBudget, Lease


def budget(
    bytes_max: int = 100, idle_seconds_max: float = 3600.0, idle_seconds_min: float = 0.0
) -> ByteBudget:
    return ByteBudget(bytes_max, idle_seconds_min=idle_seconds_min, idle_seconds_max=idle_seconds_max)


def held(lease: Lease) -> bool:
    return lease.turn.done() and not lease.over


async def test_what_fits_is_held_at_once_and_given_back_once() -> None:
    room = budget()
    lease = room.request(60)
    assert held(lease)
    assert room.used == 60
    lease.release()
    lease.release()
    assert room.used == 0


async def test_turns_go_in_the_order_of_asking_so_that_small_wishes_do_not_pass_large_ones() -> None:
    room = budget()
    first, large, small = room.request(60), room.request(90), room.request(10)
    assert (held(first), held(large), held(small)) == (True, False, False)
    assert room.waiting == 2
    first.release()
    assert (held(large), held(small)) == (True, True)
    assert room.used == 100


async def test_never_more_is_held_than_the_bound() -> None:
    room = budget()
    leases = [room.request(35) for _ in range(10)]
    while leases:
        assert room.used <= 100
        next(lease for lease in leases if held(lease)).release()
        leases = [lease for lease in leases if not lease.over]
    assert (room.used, room.waiting) == (0, 0)


async def test_who_stops_waiting_gives_its_place_to_the_next() -> None:
    room = budget()
    first, gives_up, next_one = room.request(60), room.request(90), room.request(40)
    gives_up.release()
    assert held(next_one)
    first.release()
    assert room.used == 40


async def test_a_waiter_that_is_cancelled_and_releases_leaves_nothing_behind() -> None:
    room = budget()
    first = room.request(100)

    async def wait() -> None:
        lease = room.request(50)
        try:
            await lease.granted()
        finally:
            lease.release()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert room.waiting == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (room.waiting, room.used) == (0, 100)
    first.release()
    assert room.used == 0


async def test_waiting_for_a_while_keeps_the_place() -> None:
    room = budget()
    first, second, third = room.request(100), room.request(50), room.request(60)
    assert not await second.granted(0)
    first.release()
    assert await second.granted()
    assert not held(third)


async def test_an_idle_lease_is_taken_back_when_another_waits_and_hears_of_it() -> None:
    room, dropped = budget(), list[str]()
    oldest, newer = room.request(50), room.request(40)
    oldest.idle(lambda: dropped.append("oldest"))
    newer.idle(lambda: dropped.append("newer"))
    lease = room.request(50)
    assert held(lease)
    assert dropped == ["oldest"]
    assert (oldest.busy(), newer.busy()) == (False, True)
    assert room.used == 90
    oldest.release()
    assert room.used == 90


async def test_a_lease_that_becomes_idle_makes_room_for_who_waits_already() -> None:
    room, dropped = budget(), list[str]()
    holder, waiter = room.request(80), room.request(80)
    holder.idle(lambda: dropped.append("holder"))
    assert held(waiter)
    assert dropped == ["holder"]


async def test_a_lease_in_use_is_never_taken_back() -> None:
    room, dropped = budget(), list[str]()
    holder = room.request(80)
    holder.idle(lambda: dropped.append("holder"))
    assert holder.busy()
    waiter = room.request(80)
    assert (held(waiter), dropped) == (False, [])


async def test_an_idle_lease_is_dropped_after_a_while_though_nobody_waits() -> None:
    room, dropped = budget(idle_seconds_max=0.0), asyncio.Event()
    lease = room.request(80)
    lease.idle(dropped.set)
    await asyncio.wait_for(dropped.wait(), 10)
    assert not lease.busy()
    assert room.used == 0


async def test_a_lease_that_is_idle_before_its_turn_delays_no_other_lease() -> None:
    room, dropped = budget(), list[str]()
    first, away, next_one = room.request(100), room.request(90), room.request(50)
    away.idle(lambda: dropped.append("away"))
    first.release()
    assert held(next_one)
    assert dropped == ["away"]
    assert not away.busy()
    assert room.used == 50


async def test_a_lease_grows_only_into_room_that_nobody_waits_for() -> None:
    room = budget()
    lease = room.request(30)
    assert lease.grow(70)
    other = room.request(30)
    assert not lease.grow(80)
    waiting = room.request(10)
    other.release()
    assert held(waiting)
    assert lease.grow(90)
    assert lease.grow(20)
    assert room.used == 30


async def test_a_release_while_a_thread_works_waits_for_the_thread() -> None:
    room, job = budget(), Future[None]()
    lease = room.request(70)
    job.set_running_or_notify_cancel()
    lease.covers(job)
    lease.release()
    assert room.used == 70
    job.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert room.used == 0


async def test_an_idle_lease_keeps_its_bytes_for_a_moment_although_somebody_waits() -> None:
    room, dropped = budget(idle_seconds_min=0.05), asyncio.Event()
    lease = room.request(60)
    lease.idle(dropped.set)
    waits = room.request(60)
    assert not held(waits)
    # A client that reads is back at once, and finds what it had.
    assert lease.busy()
    assert not dropped.is_set()
    lease.idle(dropped.set)
    assert await waits.granted(10)
    assert dropped.is_set()
    assert not lease.busy()
