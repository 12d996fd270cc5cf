"""Work on the event loop, some in each turn: at once while there is room, else in order."""

from __future__ import annotations

import asyncio

from tidelog_broker.limits.turns import Turns


async def test_work_for_which_there_is_room_is_done_at_once() -> None:
    turns, done = Turns(100), list[int]()

    async def work(number: int) -> None:
        await turns.turn(30)
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert done == [0, 1, 2]
    await asyncio.gather(*tasks)
    assert done == [0, 1, 2, 3]


async def test_no_turn_has_more_than_it_may_and_all_come_in_order() -> None:
    turns, done, of_turn = Turns(100), list[int](), list[int]()

    async def work(number: int) -> None:
        await turns.turn(30)
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(50)]
    while not all(task.done() for task in tasks):
        before = len(done)
        await asyncio.sleep(0)
        of_turn.append(len(done) - before)
    assert done == list(range(50))
    assert max(of_turn) <= 3


async def test_work_that_is_larger_than_a_turn_has_one_alone() -> None:
    turns, done = Turns(100), list[int]()

    async def work(size: int) -> None:
        await turns.turn(size)
        done.append(size)

    tasks = [asyncio.create_task(work(size)) for size in (10, 500, 20)]
    await asyncio.sleep(0)
    assert done == [10]
    await asyncio.gather(*tasks)
    assert done == [10, 500, 20]


async def test_what_was_cancelled_while_it_waited_holds_up_nothing() -> None:
    turns, done = Turns(100), list[int]()

    async def work(number: int) -> None:
        await turns.turn(100)
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 2]
