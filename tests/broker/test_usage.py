"""Quotas: delays first, refusals then, for each principal by itself (A10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tidelog.errors import InvalidRequest, ResourceExhausted
from tidelog.model import Quota
from tidelog_broker.api.usage import DELAY_SECONDS_MAX, PRINCIPALS_MAX, UNLIMITED, Usages
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.limits.rate import BURST_SECONDS, Rate


def test_what_a_second_allows_may_be_used_at_once() -> None:
    rate = Rate(100)

    assert rate.use(100 * BURST_SECONDS, now=50.0) == 0.0
    assert rate.use(50, now=50.0) == pytest.approx(0.5)


def test_the_wait_ends_and_unused_seconds_are_not_saved() -> None:
    rate = Rate(100)
    rate.use(150, now=50.0)

    assert rate.wait(now=50.5) == 0.0
    assert rate.use(100, now=1000.0) == 0.0
    assert rate.use(1, now=1000.0) == pytest.approx(0.01)


def test_over_any_time_the_rate_holds() -> None:
    rate, now, used = Rate(1000), 0.0, 0
    while now < 60:
        used += 700
        now += rate.use(700, now)

    assert used <= 1000 * (60 + BURST_SECONDS) + 700


def test_one_large_piece_is_possible() -> None:
    assert Rate(100).use(10_000, now=0.0) == pytest.approx(100 - BURST_SECONDS)


def test_no_limit_never_waits() -> None:
    assert Rate(0).use(1 << 60, now=0.0) == 0.0


def usages(*quotas: Quota) -> tuple[Usages, Callable[..., None]]:
    """And how to change them."""
    image = ClusterImage(quotas={quota.principal: quota for quota in quotas})
    made = Usages(lambda: image)

    def change(*now: Quota) -> None:
        nonlocal image
        image = ClusterImage(quotas={quota.principal: quota for quota in now})
        made.follow()

    return made, change


async def test_a_principal_has_its_own_quota_or_that_of_all() -> None:
    all_of_them = Quota(principal="*", requests_per_second=1)
    own = Quota(principal="user:ann", requests_per_second=2)
    found, change = usages(all_of_them, own)

    assert found.of("user:ann").quota == own
    assert found.of("user:bob").quota == all_of_them
    assert found.of("user:bob") is not found.of("user:eve")
    change(own)
    assert found.of("user:bob").quota is None


async def test_a_request_is_delayed_and_then_refused() -> None:
    found, _ = usages(Quota(principal="*", requests_per_second=1000))
    ann, bob = found.of("user:ann"), found.of("user:bob")
    loop = asyncio.get_running_loop()
    await ann.pace(ann.requests, 1020, "requests")
    begun = loop.time()
    await ann.pace(ann.requests, 5000, "requests")

    assert loop.time() - begun >= 0.019
    assert ann.delayed_seconds > 0
    with pytest.raises(ResourceExhausted, match="user:ann uses more requests than its quota allows") as told:
        await ann.pace(ann.requests, 1, "requests")
    assert told.value.retry_after_ms is not None
    assert told.value.retry_after_ms > DELAY_SECONDS_MAX * 1000
    await bob.pace(bob.requests, 1, "requests")
    assert bob.delayed_seconds == 0


async def test_a_stream_is_told_to_wait_and_never_refused() -> None:
    found, _ = usages(Quota(principal="user:ann", produce_bytes_per_second=1024))
    ann = found.of("user:ann")

    now = asyncio.get_running_loop().time
    ann.used(ann.produced, 1024)
    assert ann.produced.wait(now()) == 0.0
    ann.used(ann.produced, 102_400)
    assert ann.produced.wait(now()) == pytest.approx(100, abs=1)
    ann.used(ann.fetched, 1 << 40)
    assert ann.fetched.wait(now()) == 0.0


async def test_calls_at_a_time_are_refused_above_the_quota() -> None:
    found, _ = usages(Quota(principal="user:ann", calls_max=2))
    ann = found.of("user:ann")
    ann.begin()
    ann.begin()

    with pytest.raises(ResourceExhausted, match="user:ann has 2 calls on this broker"):
        ann.begin()
    ann.end()
    ann.begin()
    assert ann.refused == 1


async def test_a_new_quota_holds_for_calls_that_run() -> None:
    found, change = usages(Quota(principal="user:ann", requests_per_second=1))
    ann = found.of("user:ann")
    ann.begin()
    change(Quota(principal="user:ann", requests_per_second=500))

    assert (ann.requests.per_second, ann.calls) == (500, 1)


async def test_idle_principals_are_forgotten() -> None:
    found, _ = usages(Quota(principal="*", requests_per_second=1))
    busy = found.of("user:busy")
    busy.begin()
    for number in range(PRINCIPALS_MAX + 5):
        found.of(f"user:{number}")

    assert found.of("user:busy") is busy
    assert len(list(found.samples())) == 2 * PRINCIPALS_MAX


async def test_superusers_have_no_limits() -> None:
    UNLIMITED.begin()
    await UNLIMITED.pace(UNLIMITED.requests, 1 << 60, "requests")

    assert UNLIMITED.calls == 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Quota(principal="group:x", calls_max=1), "is a group; give a principal"),
        (Quota(principal="ann", calls_max=1), "is not a principal"),
        (Quota(principal="user:ann"), "limits nothing"),
        (Quota(principal="user:ann", produce_bytes_per_second=1), "give at least 1024"),
        (Quota(principal="user:ann", requests_per_second=-1), "give at least 1"),
    ],
)
def test_wrong_quotas_are_refused(wrong: Quota, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        wrong.check()
