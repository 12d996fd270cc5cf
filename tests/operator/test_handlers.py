"""Whether the operator notices what kopf does not watch, and what it needs of kopf's private parts.

kopf looks once which resources the API server serves, and stops watching what it does not find later. It has
no public way to ask what it watches, so `kubernetes.handlers` reads its private `Insights`. If an upgrade of
kopf breaks the first three tests here, find out where kopf now keeps the resources that it watches, and
change `kubernetes.handlers` alone.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import signal
from pathlib import Path
from typing import Any

import kopf
import pytest
from structlog.testing import capture_logs

from tidelog_operator.kubernetes import handlers
from tidelog_operator.kubernetes.handlers import WatchLost, _check, _until_one_ends, watch
from tidelog_operator.kubernetes.objects import Objects

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
    assert "insights" in inspect.signature(kopf.spawn_tasks).parameters


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


class ServedKube:
    """An API server that serves every kind. kopf asks another address, at which none listens."""

    async def missing_kinds(self) -> list[str]:
        return []


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: none, user: {}}]
"""


async def test_kopf_does_not_keep_the_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    stop, taken = asyncio.Event(), asyncio.Event()
    loop, kube, feed = asyncio.get_running_loop(), ServedKube(), Objects(lambda _: None)

    def take_signals() -> None:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        taken.set()

    watching = asyncio.create_task(
        watch(
            feed,
            kube,  # type: ignore[arg-type]
            kubeconfig=str(path),
            namespaces=[],
            ready=asyncio.Event(),
            take_signals=take_signals,
        )
    )
    await taken.wait()
    signal.raise_signal(signal.SIGTERM)
    await stop.wait()
    await asyncio.sleep(0)

    loop.remove_signal_handler(signal.SIGTERM)
    loop.remove_signal_handler(signal.SIGINT)
    assert not watching.done()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def endless() -> None:
    await asyncio.Event().wait()


async def stubborn(release: asyncio.Event) -> None:
    """Swallows its cancellation, as `asyncio.wait_for` may do in Python 3.11."""
    while not release.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await release.wait()


async def test_a_task_that_ends_is_named_and_the_others_end() -> None:
    other = asyncio.create_task(endless())

    with pytest.raises(WatchLost, match=r"kopf has ended its task: short\. The operator must restart\."):
        await _until_one_ends([asyncio.create_task(asyncio.sleep(0), name="short"), other])

    assert other.cancelled()


async def test_the_error_of_a_task_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("no credentials")

    with pytest.raises(ValueError, match="no credentials"):
        await _until_one_ends([asyncio.create_task(fails()), asyncio.create_task(endless())])


async def test_a_task_that_does_not_end_is_named_and_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "STOP_SECONDS_MAX", 0.0)
    release = asyncio.Event()
    late = asyncio.create_task(stubborn(release), name="late")
    waiting = asyncio.create_task(_until_one_ends([late, asyncio.create_task(endless())]))
    await asyncio.sleep(0)

    waiting.cancel()
    with capture_logs() as logged, pytest.raises(asyncio.CancelledError):
        await waiting

    assert [one["task"] for one in logged if one["log_level"] == "error"] == ["late"]
    assert "stubborn" in str(logged[0]["stack"])
    release.set()
    await late
