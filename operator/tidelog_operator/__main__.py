"""Watches Clusters and Streams, and has the brokers be what they say."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog
import typer

from tidelog_operator.http import HttpServer, ListenError, parse_address
from tidelog_operator.kubernetes.api import Kube
from tidelog_operator.kubernetes.definitions import ApplyError, applied
from tidelog_operator.kubernetes.handlers import WatchLost, watch
from tidelog_operator.kubernetes.leader_election import LeaderElection
from tidelog_operator.reconcile_loop import ReconcileLoop
from tidelog_operator.reporting.event_writer import EventWriter
from tidelog_operator.reporting.metrics import Metrics
from tidelog_operator.reporting.reports import Reports

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


KUBECONFIG: Any = typer.Option(
    "", envvar="KUBECONFIG", help="How to log in. Without it: as the pod's service account."
)
NAMESPACES: Any = typer.Option(
    None,
    "--namespace",
    envvar="TIDELOG_NAMESPACES",
    help="Watch only this one; repeatable. Without it: all.",
)
LEASE_NAMESPACE: Any = typer.Option(
    "", envvar="TIDELOG_LEASE_NAMESPACE", help="Where the Lease is. Without it: the pod's namespace."
)
LEASE_NAME: Any = typer.Option("tidelog-operator", help="Of operators that share a Lease one works.")
IDENTITY: Any = typer.Option(
    "",
    envvar="TIDELOG_IDENTITY",
    help="Of this operator, in the Lease; in a pod its name: who comes back has it at once. "
    "Without it: of this process.",
)
METRICS: Any = typer.Option(
    "127.0.0.1:9215",
    metavar="HOST:PORT",
    envvar="TIDELOG_METRICS",
    help="Where /metrics, /healthz and /readyz are served; empty: nowhere.",
)
LOG_JSON: Any = typer.Option(False, help="Write log lines as JSON.")
FOLDER: Any = typer.Argument(metavar="FOLDER", help="Of the files: the project's crds/.", show_default=False)


@app.command()
def run(
    kubeconfig: str = KUBECONFIG,
    namespace: list[str] | None = NAMESPACES,
    lease_namespace: str = LEASE_NAMESPACE,
    lease_name: str = LEASE_NAME,
    identity: str = IDENTITY,
    metrics: str = METRICS,
    log_json: bool = LOG_JSON,
) -> None:
    """Run until SIGTERM."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer() if log_json else structlog.dev.ConsoleRenderer(colors=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if kubeconfig:
        # kopf reads this file, and knows no other way to be told of it.
        os.environ["KUBECONFIG"] = kubeconfig
    where = lease_namespace or _own_namespace()
    if not where:
        raise typer.BadParameter("not in a pod: say where the Lease is, with --lease-namespace")
    identity = identity or f"{socket.gethostname()}_{os.getpid()}"
    try:
        listen = parse_address(metrics) if metrics else None
        asyncio.run(_run(kubeconfig, namespace or [], where, lease_name, identity, listen))
    except ListenError as error:
        raise typer.BadParameter(str(error), param_hint="--metrics") from error
    except ExceptionGroup as errors:
        not_watched = errors.subgroup(WatchLost)
        if not_watched is None:
            raise
        structlog.get_logger(__name__).error("the operator ends", reason=str(not_watched.exceptions[0]))
        raise typer.Exit(1) from errors


@app.command()
def apply_definitions(folder: Path = FOLDER, kubeconfig: str = KUBECONFIG) -> None:
    """Make Kubernetes' definitions of Clusters and Streams, or change them to what the files say.

    Ends when the API server serves them.
    """
    try:
        for name in asyncio.run(applied(folder, kubeconfig)):
            typer.echo(f"{name} is as {folder} says")
    except ApplyError as error:
        typer.echo(f"tidelog-operator: {error}", err=True)
        raise typer.Exit(1) from error


def _own_namespace() -> str:
    try:
        with open(NAMESPACE_FILE) as file:
            return file.read().strip()
    except OSError:
        return ""


async def _run(
    kubeconfig: str,
    namespaces: list[str],
    lease_namespace: str,
    lease_name: str,
    identity: str,
    listen: tuple[str, int] | None,
) -> None:
    stop, ready, metrics = asyncio.Event(), asyncio.Event(), Metrics()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Kube(kubeconfig, metrics.requests()) as kube, AsyncExitStack() as held:
        events = EventWriter(kube, identity)
        leading: LeaderElection | None = None

        def leads() -> bool:
            return leading is not None and leading.leads

        def why_not_ready() -> str:
            if leading is None or not leading.knows:
                return "the API server has not answered yet"
            return "" if ready.is_set() else "watching has not begun"

        reconciling = await held.enter_async_context(ReconcileLoop(kube, leads, Reports(events, metrics)))
        leading = LeaderElection(kube, lease_namespace, lease_name, identity, reconciling.begin)
        metrics.observe(reconciling.objects, leads, lambda: events.dropped)
        if listen is not None:
            await held.enter_async_context(HttpServer(*listen, metrics.registry, why_not_ready))
        watching = watch(
            reconciling.objects, kube, kubeconfig=kubeconfig, namespaces=namespaces, ready=ready, stop=stop
        )
        await _until_first(watching, leading.run(), events.run(), stop.wait())


async def _until_first(*work: Any) -> None:
    """Ends all when one has ended; raises what it raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
