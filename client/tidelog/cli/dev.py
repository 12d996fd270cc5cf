"""``tidelog dev``: a NATS server and one broker to try things with, data kept between runs."""

from __future__ import annotations

import fcntl
import os
import selectors
import socket
import sys
from pathlib import Path

import typer
from rich.console import Console

from tidelog.cli._errors import Exit, fail
from tidelog.cli._local_cluster import Addresses, LocalCluster, check_broker_installed, check_writable
from tidelog.cli._nats_server import find_nats_server
from tidelog.cli._output import OUTPUT, Output, console, facts, print_json
from tidelog.cli._processes import Child, Signals, check_port

EXAMPLE = "tidelog dev --data ./tidelog-data"


def default_folder() -> Path:
    """Where the data of `tidelog dev` lies unless the user says otherwise."""
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(share) / "tidelog" / "dev"


def dev(
    data: Path | None = typer.Option(
        None,
        "--data",
        help="Folder for data and logs; kept between runs. Default: ~/.local/share/tidelog/dev.",
    ),
    host: str = typer.Option(
        "127.0.0.1", "--host", help="Address to listen on; loopback: this machine only."
    ),
    port: int = typer.Option(9210, "--port", min=1, max=65535, help="The broker's gRPC port."),
    http_port: int = typer.Option(
        9211,
        "--http-port",
        min=1,
        max=65535,
        help="The broker's HTTP port: /metrics, /healthz, /debug/state.",
    ),
    nats_port: int = typer.Option(4222, "--nats-port", min=1, max=65535, help="The NATS server's port."),
    output: Output = OUTPUT,
) -> None:
    """Run a NATS server and one broker until Ctrl-C; data is kept between runs.

    The first run formats the data folder. One broker only, for now: nothing is replicated.
    """
    check_broker_installed()
    find_nats_server()
    _check_host(host)
    folder = (data or default_folder()).expanduser().resolve()
    check_writable(folder)
    lock = _lock(folder)
    for number, option in ((port, "--port"), (http_port, "--http-port"), (nats_port, "--nats-port")):
        check_port(host, number, option)
    if len({port, http_port, nats_port}) < 3:
        fail("--port, --http-port and --nats-port must differ", Exit.USAGE)
    signals = Signals()
    cluster = LocalCluster(folder, Addresses(host, port, http_port, nats_port), signals)
    screen = console(to_stderr=output is Output.JSON)
    with signals.caught():
        try:
            try:
                ended = _serve(cluster, screen, output)
            finally:
                signals.ignore()
        except KeyboardInterrupt:
            screen.print("\nstopping")
            ended = None
        finally:
            signals.ignore()
            killed = cluster.stop()
            os.close(lock)
    if killed:
        fail(f"did not stop in time and was killed: {', '.join(killed)}; see the logs in {folder}")
    if ended is not None:
        fail(f"the {ended.name} {ended.how_it_ended()}")
    screen.print("stopped; the data is kept in", str(folder))


def _check_host(host: str) -> None:
    """Clients are sent to this address, so it must be one, and this machine's."""
    if host in ("", "0.0.0.0", "::"):
        fail(
            f"--host {host!r} is no address that a client could connect to; give one of this machine",
            Exit.USAGE,
        )
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        fail(f"--host {host}: this machine has no such IPv4 address", Exit.USAGE)


def _serve(cluster: LocalCluster, screen: Console, output: Output) -> Child:
    """Starts everything and waits; the child that ended by itself."""
    cluster.start_nats()
    cluster.start_broker()
    if output is Output.JSON:
        print_json(
            {
                "server": cluster.addresses.server,
                "http": cluster.addresses.http,
                "nats": cluster.addresses.nats,
                "data": str(cluster.folder),
                "processes": {child.name: child.process.pid for child in cluster.children},
            }
        )
        sys.stdout.flush()
    else:
        _welcome(cluster, screen)
    return _first_to_end(cluster.children)


def _welcome(cluster: LocalCluster, screen: Console) -> None:
    at = cluster.addresses
    server = "" if at.server == "127.0.0.1:9210" else f" --server {at.server}"
    url = "" if at.nats_port == 4222 else f" (servers={at.nats!r})"
    screen.print(
        facts(
            [
                ("broker", f"{at.server}  (gRPC)"),
                ("", f"{at.http}/metrics"),
                ("NATS", at.nats),
                ("data", cluster.folder),
            ]
        )
    )
    screen.print("\nTry, in another terminal:")
    screen.print(f"  tidelog stream create orders --subject 'orders.>'{server}", markup=False)
    screen.print(f"  echo 'one order' | tidelog produce orders{server}", markup=False)
    screen.print(f"  tidelog consume orders --follow{server}", markup=False)
    screen.print(f"\nWhat any NATS client publishes on orders.> is recorded too{url}.", markup=False)
    screen.print("Ctrl-C stops both; the data is kept.")


def _first_to_end(children: list[Child]) -> Child:
    with selectors.DefaultSelector() as selector:
        fds = [os.pidfd_open(child.process.pid) for child in children]
        try:
            for fd, child in zip(fds, children, strict=True):
                selector.register(fd, selectors.EVENT_READ, child)
            key, _ = selector.select()[0]
            ended: Child = key.data
            ended.process.wait()
            return ended
        finally:
            for fd in fds:
                os.close(fd)


def _lock(folder: Path) -> int:
    """Keeps a second `tidelog dev` out of the folder; a descriptor to close at the end."""
    fd = os.open(folder / "dev.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        fail(
            f"another tidelog dev (process {owner}) uses {folder}; "
            "stop it, or choose another folder with --data",
            Exit.ENVIRONMENT,
        )
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
