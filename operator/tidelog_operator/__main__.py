"""Makes the brokers on Kubernetes match the Clusters and Streams."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

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

NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

STOP_SECONDS_MAX: Final = 15.0
"""How long a stop may take. After this time the process writes where it hangs, and ends with exit code 1."""


KUBECONFIG: Any = typer.Option(
    "",
    envvar="KUBECONFIG",
    help="Kubeconfig file for the API server. Default: the service account of the pod.",
)
NAMESPACES: Any = typer.Option(
    None,
    "--namespace",
    envvar="TIDELOG_NAMESPACES",
    help="Watch only this namespace; repeatable. Default: all namespaces.",
)
LEASE_NAMESPACE: Any = typer.Option(
    "", envvar="TIDELOG_LEASE_NAMESPACE", help="Namespace of the Lease. Default: the namespace of the pod."
)
LEASE_NAME: Any = typer.Option(
    "tidelog-operator", help="Name of the Lease. Of all operators that use the same Lease, one is active."
)
IDENTITY: Any = typer.Option(
    "",
    envvar="TIDELOG_IDENTITY",
    help="Identity of this operator in the Lease. In a pod, use the pod's name: after a restart of the "
    "container the operator is active at once. Default: host name and process id.",
)
METRICS: Any = typer.Option(
    "127.0.0.1:9215",
    metavar="HOST:PORT",
    envvar="TIDELOG_METRICS",
    help="Address of /metrics, /healthz and /readyz. Empty: do not serve them.",
)
LOG_JSON: Any = typer.Option(False, help="Write log lines as JSON.")
FOLDER: Any = typer.Argument(
    metavar="FOLDER", help="Folder with the definitions: the project's crds/.", show_default=False
)


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
        # kopf reads this file, and has no parameter for its path.
        os.environ["KUBECONFIG"] = kubeconfig
    where = lease_namespace or _own_namespace()
    if not where:
        raise typer.BadParameter(
            "The namespace of the Lease is unknown outside of a pod. Set --lease-namespace."
        )
    identity = identity or f"{socket.gethostname()}_{os.getpid()}"
    try:
        listen = parse_address(metrics) if metrics else None
        asyncio.run(_run(kubeconfig, namespace or [], where, lease_name, identity, listen))
    except ListenError as error:
        raise typer.BadParameter(str(error), param_hint="--metrics") from error
    except WatchLost as error:
        structlog.get_logger(__name__).error("operator stopped", reason=str(error))
        raise typer.Exit(1) from error


@app.command()
def apply_definitions(folder: Path = FOLDER, kubeconfig: str = KUBECONFIG) -> None:
    """Create or update the CustomResourceDefinitions of Tidelog from files.

    Returns when the API server serves them.
    """
    try:
        for name in asyncio.run(applied(folder, kubeconfig)):
            typer.echo(f"{name} is up to date with {folder}")
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

    def begin_stop() -> None:
        faulthandler.dump_traceback_later(STOP_SECONDS_MAX, exit=True)
        stop.set()

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, begin_stop)

    take_signals()
    async with Kube(kubeconfig, metrics.requests()) as kube, AsyncExitStack() as stack:
        events = EventWriter(kube, identity)
        election = LeaderElection(kube, lease_namespace, lease_name, identity)

        def leads() -> bool:
            return election.leads

        def why_not_ready() -> str:
            if not election.has_observed_lease:
                return "The API server has not answered yet."
            return "" if ready.is_set() else "The watches have not started yet."

        reconciling = await stack.enter_async_context(ReconcileLoop(kube, leads, Reports(events, metrics)))
        metrics.observe(reconciling.objects, leads, lambda: events.dropped)
        if listen is not None:
            await stack.enter_async_context(HttpServer(*listen, metrics.registry, why_not_ready))
        watching = watch(
            reconciling.objects,
            kube,
            kubeconfig=kubeconfig,
            namespaces=namespaces,
            ready=ready,
            take_signals=take_signals,
        )
        election_run = election.run(reconciling.started_leading)
        await _until_first(watching, election_run, events.run(), stop.wait())


async def _until_first(*work: Any) -> None:
    """Ends all tasks when the first one ends, and raises its exception."""
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
