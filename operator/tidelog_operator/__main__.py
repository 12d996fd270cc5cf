"""``tidelog-operator run``: watches Clusters and Streams, and has the brokers be what they say."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

import structlog
import typer

from tidelog_operator.handlers import watch
from tidelog_operator.kube import Kube
from tidelog_operator.leading import Leading
from tidelog_operator.loop import Loop

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@app.callback()
def _several() -> None:
    """Has `run` be a command of its own."""


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
LOG_JSON: Any = typer.Option(False, help="Write log lines as JSON.")


@app.command()
def run(
    kubeconfig: str = KUBECONFIG,
    namespace: list[str] | None = NAMESPACES,
    lease_namespace: str = LEASE_NAMESPACE,
    lease_name: str = LEASE_NAME,
    identity: str = IDENTITY,
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
    asyncio.run(_run(kubeconfig, namespace or [], where, lease_name, identity))


def _own_namespace() -> str:
    try:
        with open(NAMESPACE_FILE) as file:
            return file.read().strip()
    except OSError:
        return ""


async def _run(
    kubeconfig: str, namespaces: list[str], lease_namespace: str, lease_name: str, identity: str
) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Kube(kubeconfig) as kube:
        leading: Leading | None = None

        def leads() -> bool:
            return leading is not None and leading.leads

        async with Loop(kube, leads) as reconciling:
            leading = Leading(kube, lease_namespace, lease_name, identity, reconciling.wake_all)
            watching = watch(
                reconciling.objects, kubeconfig=kubeconfig, namespaces=namespaces, ready=ready, stop=stop
            )
            await _until_first(watching, leading.run(), stop.wait())


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
