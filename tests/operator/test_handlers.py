"""Whether the operator notices what kopf does not watch, and what it needs of kopf's private parts.

kopf looks once which resources the API server serves, and stops watching what it does not find later. It has
no public way to ask what it watches, so `kubernetes.handlers` reads its private `Insights`. If an upgrade of
kopf breaks the first three tests here, find out where kopf now keeps the resources that it watches, and
change `kubernetes.handlers` alone.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
from pathlib import Path
from typing import Any

import kopf
import pytest

from tidelog_operator.kubernetes import handlers
from tidelog_operator.kubernetes.handlers import WatchLost, _check

ROOT = Path(__file__).parents[2]
PRIVATE = "kopf._cogs.structs.references"

WANTED = [("tidelog.io", "v1alpha1", "streams"), ("", "v1", "pods")]


def modules_with_private_imports() -> set[str]:
    found = set()
    for path in (ROOT / "operator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if any(name.startswith("kopf._") for name in names):
                found.add(path.relative_to(ROOT / "operator").as_posix())
    return found


def test_one_module_uses_a_private_part_of_kopf() -> None:
    assert modules_with_private_imports() == {"tidelog_operator/kubernetes/handlers.py"}


def test_kopf_still_keeps_what_it_watches_in_insights() -> None:
    insights = getattr(importlib.import_module(PRIVATE), "Insights", None)
    assert insights is not None, f"kopf has no {PRIVATE}.Insights any more"

    made = insights()
    for event in ("ready_resources", "ready_namespaces"):
        assert isinstance(getattr(made, event, None), asyncio.Event), (
            f"Insights.{event} is not an event any more"
        )
    resource = kopf.Resource(*WANTED[0])
    made.watched_resources.add(resource)

    (watched,) = made.watched_resources
    assert (watched.group, watched.version, watched.plural) == WANTED[0]


def test_kopf_still_takes_insights_from_outside() -> None:
    assert "insights" in inspect.signature(kopf.operator).parameters


def insights_of(*found: tuple[str, str, str]) -> Any:
    # Private in kopf: no module but `handlers` imports it.
    insights: Any = vars(handlers)["Insights"]()
    insights.watched_resources.update(kopf.Resource(*one) for one in found)
    insights.ready_resources.set()
    insights.ready_namespaces.set()
    return insights


async def test_an_operator_that_watches_too_little_ends_and_was_never_ready() -> None:
    ready = asyncio.Event()

    with pytest.raises(
        WatchLost, match=r"kopf does not watch streams\.tidelog\.io\. The operator must restart\."
    ):
        await _check(insights_of(WANTED[1]), WANTED, ready)

    assert not ready.is_set()


async def test_a_watch_may_be_missing_for_a_moment_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "CHECK_SECONDS", 0.0)
    insights, ready = insights_of(*WANTED), asyncio.Event()
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


async def test_an_operator_without_namespaces_is_not_ready() -> None:
    """Without the right to list namespaces kopf watches nothing."""
    insights, ready = insights_of(*WANTED), asyncio.Event()
    insights.ready_namespaces.clear()
    checking = asyncio.create_task(_check(insights, WANTED, ready))

    for _ in range(10):
        await asyncio.sleep(0)

    assert not ready.is_set()
    checking.cancel()
