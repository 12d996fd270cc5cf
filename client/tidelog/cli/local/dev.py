"""``tidelog dev``: a NATS server and brokers on this machine, with data that is kept between runs.

One of several brokers may be killed to see what happens. `supervision` starts it again.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from pathlib import Path

import typer
from rich.console import Console

from tidelog.cli.errors import Exit, fail
from tidelog.cli.local.local_cluster import (
    BROKERS_MAX,
    Addresses,
    BrokerPorts,
    LocalCluster,
    brokers_in,
    check_broker_installed,
    check_writable,
)
from tidelog.cli.local.nats_server import find_nats_server
from tidelog.cli.local.processes import Child, Signals, check_port
from tidelog.cli.local.supervision import Supervision
from tidelog.cli.output import OUTPUT, Output, console, facts, print_json

EXAMPLE = "tidelog dev --brokers 3 --data ./tidelog-data"

PORT_STEP = 10
"""The distance from a port of one broker to the same port of the next one."""


def default_folder() -> Path:
    """The folder for data, if --data does not name another one."""
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(share) / "tidelog" / "dev"


def dev(
    brokers: int | None = typer.Option(
        None,
        "--brokers",
        min=1,
        max=BROKERS_MAX,
        help="Number of brokers. Default: as many as the data folder has, or 1.",
    ),
    data: Path | None = typer.Option(
        None,
        "--data",
        help="Folder for data and logs, kept between runs. Default: ~/.local/share/tidelog/dev.",
    ),
    host: str = typer.Option(
        "127.0.0.1", "--host", help="Address to listen on. With the default only this machine can connect."
    ),
    port: int = typer.Option(
        9210,
        "--port",
        min=1,
        max=65535,
        help="The first broker's gRPC port; the next broker has this port plus 10, and so on.",
    ),
    http_port: int = typer.Option(
        9211,
        "--http-port",
        min=1,
        max=65535,
        help="The first broker's HTTP port (/metrics, /healthz, /debug/state); the next is 10 higher.",
    ),
    peer_port: int = typer.Option(
        9212,
        "--peer-port",
        min=1,
        max=65535,
        help="With several brokers: the first broker's port for other brokers; the next is 10 higher.",
    ),
    nats_port: int = typer.Option(4222, "--nats-port", min=1, max=65535, help="The NATS server's port."),
    output: Output = OUTPUT,
) -> None:
    """Run brokers and a NATS server on this machine.

    They run until Ctrl-C. The data is kept between runs. The first run formats the data folder. With
    --brokers 3, each stream has three copies: if you kill one of the brokers, no record is lost, and the
    command starts the broker again.
    """
    check_broker_installed()
    find_nats_server()
    _check_host(host)
    folder = (data or default_folder()).expanduser().resolve()
    check_writable(folder)
    lock = _lock(folder)
    count = _count(folder, brokers)
    addresses = _addresses(count, host, nats_port, (port, http_port, peer_port))
    signals = Signals()
    cluster = LocalCluster(folder, addresses, signals)
    screen = console(to_stderr=output is Output.JSON)
    with signals.caught():
        try:
            try:
                ended = _serve(cluster, screen, output)
            finally:
                signals.ignore()
        except KeyboardInterrupt:
            screen.print("\nstopping …")
            ended = None
        finally:
            signals.ignore()
            killed = cluster.stop()
            os.close(lock)
    if killed:
        fail(f"did not stop in time and had to be killed: {', '.join(killed)}; see the logs in {folder}")
    if ended is not None:
        fail(f"{ended.subject} {ended.how_it_ended()}")
    screen.print("stopped; the data is kept in", str(folder))


def _count(folder: Path, wanted: int | None) -> int:
    """How many brokers to run. Every broker of the cluster holds a part of its data."""
    there = brokers_in(folder)
    if wanted is None:
        return there or 1
    if wanted < there:
        fail(
            f"{folder} holds a cluster of {there} brokers, and each may have data that the others lack; "
            f"give --brokers {there}, or another folder with --data",
            Exit.USAGE,
        )
    return wanted


def _addresses(count: int, host: str, nats_port: int, first: tuple[int, int, int]) -> Addresses:
    """The ports of all brokers; ends the command if one is taken, or two are the same."""
    options = ("--port", "--http-port", "--peer-port")
    used = {nats_port: "--nats-port"}
    check_port(host, nats_port, "--nats-port")
    for broker in range(count):
        for number, option in zip(first, options, strict=True):
            if option == "--peer-port" and count == 1:
                continue
            port = number + PORT_STEP * broker
            if port > 65535:
                last = number + PORT_STEP * (count - 1)
                fail(f"{option} {number} is too large: {count} brokers need ports up to {last}", Exit.USAGE)
            if port in used:
                fail(f"{option} and {used[port]} both need port {port}; choose other ports", Exit.USAGE)
            used[port] = option
            check_port(host, port, option)
    grpc, http, peers = first
    steps = range(0, PORT_STEP * count, PORT_STEP)
    return Addresses(
        host, nats_port, tuple(BrokerPorts(grpc + step, http + step, peers + step) for step in steps)
    )


def _check_host(host: str) -> None:
    """Ends the command if clients could not connect to this address, or it is not of this machine."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 refused
        fail(
            f"--host {host!r} is not an address that clients can connect to; give an address of this machine",
            Exit.USAGE,
        )
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        fail(f"--host {host}: this machine has no such IPv4 address", Exit.USAGE)


def _serve(cluster: LocalCluster, screen: Console, output: Output) -> Child:
    """Starts everything and waits; returns the process that ended and cannot be replaced."""
    supervision = Supervision(cluster, screen)
    cluster.start_nats()
    cluster.launch_brokers()
    supervision.wait_ready()
    if output is Output.JSON:
        print_json(_as_json(cluster))
        sys.stdout.flush()
    else:
        _welcome(cluster, screen)
    return supervision.until_it_cannot_go_on()


def _as_json(cluster: LocalCluster) -> dict[str, object]:
    at = cluster.addresses
    return {
        "server": at.server,
        "http": at.http,
        "nats": at.nats,
        "data": str(cluster.folder),
        "brokers": [
            {
                "broker_id": broker,
                "server": at.server_of(broker),
                "http": at.http_of(broker),
                "data": str(cluster.data_of(broker)),
            }
            for broker in range(cluster.count)
        ],
        "processes": {child.name: child.process.pid for child in cluster.children},
    }


def _welcome(cluster: LocalCluster, screen: Console) -> None:
    at = cluster.addresses
    server = "" if at.server == "127.0.0.1:9210" else f" --server {at.server}"
    url = "" if at.nats_port == 4222 else f" (servers={at.nats!r})"
    rows: list[tuple[str, object]] = []
    for broker in range(cluster.count):
        rows += [(cluster.name_of(broker), f"{at.server_of(broker)}  (gRPC)")]
        rows += [("", f"{at.http_of(broker)}/metrics")]
        if cluster.count > 1:
            rows += [("", f"process {cluster.brokers[broker].process.pid}")]
    screen.print(facts([*rows, ("NATS", at.nats), ("data", cluster.folder)]))
    screen.print("\nTry, in another terminal:")
    screen.print(f"  tidelog stream create orders --subject 'orders.>'{server}", markup=False)
    screen.print(f"  echo 'one order' | tidelog produce orders{server}", markup=False)
    screen.print(f"  tidelog consume orders --follow{server}", markup=False)
    screen.print(f"\nMessages that a NATS client publishes on orders.> are recorded, too{url}.", markup=False)
    if cluster.count > 1:
        screen.print("If you kill one of the brokers, the others go on, and it is started again.")
    screen.print("Ctrl-C stops everything; the data is kept.")


def _lock(folder: Path) -> int:
    """Keeps a second `tidelog dev` out of the folder; returns a descriptor to close at the end."""
    fd = os.open(folder / "dev.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        fail(
            f"{folder} is in use by another tidelog dev (process {owner}); "
            "stop it, or choose another folder with --data",
            Exit.ENVIRONMENT,
        )
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
