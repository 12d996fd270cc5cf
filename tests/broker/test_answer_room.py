"""Room for answers that clients have not taken: of all, of one client, and the order of waiting."""

from __future__ import annotations

from tidelog_broker.limits.answer_room import AnswerRoom


async def test_a_client_gets_a_share_and_leaves_room_for_others() -> None:
    room = AnswerRoom(400)
    held = [room.take("a", 50), room.take("a", 50)]
    assert None not in held
    assert room.take("a", 1) is None
    assert room.take("b", 100) is not None
    assert (room.used, room.used_by("a"), room.used_by("b")) == (200, 100, 100)


async def test_all_together_have_no_more_than_there_is() -> None:
    room = AnswerRoom(400)
    held = [room.take(name, 100) for name in "abcd"]
    assert room.take("e", 1) is None
    assert held[0] is not None
    held[0].release()
    held[0].release()
    assert room.used == 300
    assert room.take("e", 100) is not None


async def test_what_is_larger_than_a_share_is_taken_when_nothing_else_is_held() -> None:
    room = AnswerRoom(400)
    large = room.request("a", 1000)
    assert await large.granted(0)
    waits = room.request("b", 1000)
    assert not await waits.granted(0)
    large.release()
    assert await waits.granted(0)
    waits.release()
    assert room.used == 0


async def test_what_an_answer_does_not_need_is_given_back() -> None:
    room = AnswerRoom(400)
    held, waits = room.take("a", 100), room.request("a", 90)
    assert held is not None
    assert not await waits.granted(0)
    held.shrink(10)
    assert await waits.granted(0)
    assert room.used_by("a") == 100


async def test_a_client_that_has_its_share_holds_up_nobody_else() -> None:
    room = AnswerRoom(400)
    held, waits = room.take("a", 100), room.request("a", 50)
    assert held is not None
    assert not await waits.granted(0)
    assert await room.request("b", 100).granted(0)
    assert room.take("c", 100) is not None
    held.release()
    assert await waits.granted(0)


async def test_who_waits_for_others_is_passed_by_nobody() -> None:
    room = AnswerRoom(400)
    held = [room.take(name, 90) for name in "abcd"]
    waits = room.request("e", 100)
    assert room.take("f", 10) is None
    assert room.waiting == 1
    assert held[0] is not None
    held[0].release()
    assert await waits.granted(0)
    assert room.take("f", 10) is not None


async def test_a_place_in_the_queue_is_given_back_too() -> None:
    room = AnswerRoom(400)
    held = [room.take(name, 100) for name in "abcd"]
    first, second = room.request("e", 100), room.request("f", 100)
    first.release()
    assert held[0] is not None
    held[0].release()
    assert await second.granted(0)
    assert (room.used, room.waiting) == (400, 0)
