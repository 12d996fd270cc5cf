"""Whether everything is watched: kopf looks once, and lets go what it does not find later."""

from __future__ import annotations

import asyncio

import kopf
import pytest
from kopf._cogs.structs.references import Insights

from tidelog_operator.kubernetes import handlers
from tidelog_operator.kubernetes.handlers import WatchLost, _check

WANTED = [("tidelog.io", "v1alpha1", "streams"), ("", "v1", "pods")]


def looked(*found: tuple[str, str, str]) -> Insights:
    insights = Insights()
    insights.watched_resources.update(kopf.Resource(*one) for one in found)
    insights.ready_resources.set()
    insights.ready_namespaces.set()
    return insights


async def test_who_watches_too_little_ends_and_was_never_ready() -> None:
    ready = asyncio.Event()

    with pytest.raises(
        WatchLost, match=r"nobody watches streams\.tidelog\.io; the operator has to begin again"
    ):
        await _check(looked(WANTED[1]), WANTED, ready)

    assert not ready.is_set()


async def test_what_goes_for_a_moment_is_waited_for_and_what_stays_away_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "CHECK_SECONDS", 0.0)
    insights, ready = looked(*WANTED), asyncio.Event()
    stream = kopf.Resource(*WANTED[0])
    checking = asyncio.create_task(_check(insights, WANTED, ready))
    await ready.wait()

    insights.watched_resources.discard(stream)
    await asyncio.sleep(0)
    insights.watched_resources.add(stream)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not checking.done()

    insights.watched_resources.discard(stream)
    with pytest.raises(WatchLost):
        await checking


async def test_without_namespaces_nobody_is_ready() -> None:
    """Where kopf may not list them it watches nothing."""
    insights, ready = looked(*WANTED), asyncio.Event()
    insights.ready_namespaces.clear()
    checking = asyncio.create_task(_check(insights, WANTED, ready))

    for _ in range(10):
        await asyncio.sleep(0)

    assert not ready.is_set()
    checking.cancel()
