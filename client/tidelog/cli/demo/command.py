"""``tidelog demo``: shows everything in one run, with this machine's own metrics as data.

Plain NATS messages → a durable Arrow log with three copies → gRPC → Spark → Parquet, and a broker that is
killed meanwhile. Everything happens in a temporary folder on free loopback ports. Nothing is left behind,
however the demo ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.status import Status

from tidelog.cli.demo.failover import Failover, kill_leader_under_load, wait_in_sync
from tidelog.cli.demo.results import Results, chart_lines, result_table, results_json
from tidelog.cli.demo.stream import Recorded, publish_and_tail, run_async
from tidelog.cli.errors import Exit, fail
from tidelog.cli.local.local_cluster import (
    Addresses,
    LocalCluster,
    check_broker_installed,
    check_package,
)
from tidelog.cli.local.nats_server import find_nats_server
from tidelog.cli.local.processes import Child, Signals, free_ports, python_module, start
from tidelog.cli.output import OUTPUT, Output, console, print_json, table
from tidelog.cli.values import show_bytes
from tidelog.wording import count_of

EXAMPLE = "tidelog demo --seconds 15"

STREAM = "host-metrics"
ORDERS = "orders"
SUBJECT = "host.>"
JOB = "tidelog_spark.jobs.host_metrics"
SPARK_SECONDS_MAX = 300.0
HOST = "127.0.0.1"
BROKERS = 3


@dataclass(slots=True)
class _Run:
    """One run of the demo."""

    folder: Path
    screen: Console
    signals: Signals
    cluster: LocalCluster
    children: list[Child] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0

    @contextlib.contextmanager
    def step(self, name: str, heading: str) -> Iterator[None]:
        """Prints a numbered heading, and measures how long the step takes."""
        self.steps += 1
        self.screen.print(f"\n[bold cyan]{self.steps}[/]  [bold]{heading}[/]")
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun

    def say(self, text: str) -> None:
        self.screen.print(f"   {text}", markup=False)


def demo(
    seconds: float = typer.Option(
        6.0, "--seconds", min=1.0, max=600.0, help="How long to record this machine's metrics."
    ),
    output: Output = OUTPUT,
) -> None:
    """See NATS, three brokers, Spark and Parquet in one run.

    The demo records CPU, memory, disk, network and process metrics of this machine for some seconds, kills a
    broker while records are written, and aggregates the metrics with Spark. It leaves nothing behind. It
    needs tidelog[all], which brings Java if there is none.
    """
    check_broker_installed()
    find_nats_server()
    for module, extra in (("psutil", "dev-cluster"), ("nats", "dev-cluster"), ("pyspark", "spark")):
        check_package(module, extra, f"the package {module}")
    check_package("tidelog_spark", "spark", "the Spark source")
    signals = Signals()
    screen = console(to_stderr=output is Output.JSON)
    stack = contextlib.ExitStack()
    with signals.caught():
        try:
            try:
                run = _prepare(stack, signals, screen)
                found = _demonstrate(run, seconds)
            finally:
                signals.ignore()
        except KeyboardInterrupt:
            screen.print("\nstopping: the demo removes its processes and files …")
            raise
        finally:
            signals.ignore()
            begun = time.perf_counter()
            stack.close()
    run.seconds["clean up"] = time.perf_counter() - begun
    _conclude(run, found, output)


def _prepare(stack: contextlib.ExitStack, signals: Signals, screen: Console) -> _Run:
    with signals.held():
        folder = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
        stack.callback(_remove, folder)
        cluster = LocalCluster(
            folder, Addresses.of(HOST, free_ports(1 + 3 * BROKERS)), signals, logs_kept=False
        )
        stack.callback(cluster.kill)
        run = _Run(folder, screen, signals, cluster)
        stack.callback(_stop_all, run.children)
    return run


def _demonstrate(run: _Run, seconds: float) -> tuple[Recorded, Failover, Results]:
    run.screen.print("[bold]Tidelog[/]: plain NATS messages → a durable Arrow log → gRPC → Spark → Parquet")
    at = run.cluster.addresses
    with run.step("start", f"A NATS server and {BROKERS} Tidelog brokers, on this machine only"):
        run.cluster.start_nats()
        run.say(f"NATS server  {at.nats}")
        run.cluster.launch_brokers(_own_settings(run.folder))
        for broker in range(BROKERS):
            run.cluster.wait_ready(broker)
        for broker in range(BROKERS):
            run.say(f"broker {broker}     {at.server_of(broker)} (gRPC), {at.http_of(broker)}/metrics")
    with run.step("record", f"A stream that records {SUBJECT}, and {seconds:g} s of this machine's metrics"):
        run.say(
            "The publisher is a plain NATS client, which sends JSON to host.<name>.<kind> and knows nothing"
        )
        run.say(
            "of Tidelog. The leader of the stream subscribes, writes Arrow batches, and acknowledges them"
        )
        run.say("when all brokers have fsynced them. Here are some of the records, read back from the log:")
        recorded = run_async(
            run.signals, lambda: publish_and_tail(at.server, at.nats, STREAM, SUBJECT, seconds, run.screen)
        )
        run.say(
            f"{recorded.published} messages published, {recorded.records} records in the log, "
            f"{show_bytes(recorded.bytes)} on disk in each of three fsynced copies"
        )
    with run.step("failover", "The leader of another stream is killed while records are written to it"):
        failover = _kill_a_leader(run)
    with run.step("spark", 'Spark reads the stream: spark.read.format("tidelog"), Arrow all the way'):
        spark = _run_spark(run)
        run.say(", ".join(f"{name} {took:.1f} s" for name, took in spark.items()))
    with run.step("results", "What Spark wrote to Parquet"):
        results = Results.read(run.folder / "parquet")
        files = count_of(len(results.files), "Parquet file")
        run.say(f"{files}, {show_bytes(results.bytes)}, partitioned by kind")
        run.screen.print(result_table(results))
        run.screen.print("\n   CPU, all cores, second by second")
        for line in chart_lines(results):
            run.screen.print(f"   {line}", markup=False)
    return recorded, failover, results


def _kill_a_leader(run: _Run) -> Failover:
    cluster, servers = run.cluster, run.cluster.addresses.servers

    def kill(broker: int) -> None:
        run.say(f"kill -9 of broker {broker}, which leads {ORDERS}")
        cluster.brokers[broker].process.kill()
        cluster.brokers[broker].process.wait()

    found = run_async(run.signals, lambda: kill_leader_under_load(servers, ORDERS, kill))
    run.say(f"broker {found.leader} leads now; writing paused for {found.pause_seconds:.2f} s")
    run.say(f"{found.acknowledged} records acknowledged, {found.lost} lost, {found.stored} stored")
    if found.lost:
        fail(f"{count_of(found.lost, 'acknowledged record was', 'acknowledged records were')} lost")
    cluster.launch(found.killed)
    cluster.wait_ready(found.killed)
    run_async(run.signals, lambda: wait_in_sync(servers, ORDERS))
    run.say(f"broker {found.killed} was started again and is in sync")
    return found


def _run_spark(run: _Run) -> dict[str, float]:
    argv = python_module(
        JOB,
        "--server",
        run.cluster.addresses.server,
        "--stream",
        STREAM,
        "--output",
        str(run.folder / "parquet"),
    )
    out, log = run.folder / "spark.out", run.folder / "spark.log"
    env = _own_settings(run.folder)
    # A killed Java process would leave a file in the system's temporary folder.
    env["JDK_JAVA_OPTIONS"] = f"{env.get('JDK_JAVA_OPTIONS', '')} -XX:-UsePerfData".strip()
    with run.signals.held():
        child = start("Spark job", argv, log, env=env, stdout=out)
        child.log_kept = False
        run.children.append(child)
    with _spinner(run.screen, "Spark starts, reads over gRPC, aggregates, writes Parquet …"):
        child.wait_ready(lambda: child.process.poll() == 0, SPARK_SECONDS_MAX)
    seconds: dict[str, float] = json.loads(out.read_text().strip().splitlines()[-1])
    return seconds


def _spinner(screen: Console, text: str) -> contextlib.AbstractContextManager[Any]:
    if screen.is_terminal:
        return Status(f"  {text}", console=screen)
    screen.print(f"   {text}")
    return contextlib.nullcontext()


def _own_settings(folder: Path) -> dict[str, str]:
    """The environment without the settings of the user's own brokers."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**env, "TMPDIR": str(temporary)}


def _stop_all(children: list[Child]) -> None:
    while children:
        children.pop().stop(seconds_max=5.0)


def _remove(folder: Path) -> None:
    """Removes a folder. A process that was killed may still make a file meanwhile, so it tries again."""
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.2)
    fail(f"could not remove {folder}", Exit.ENVIRONMENT)


def _conclude(run: _Run, found: tuple[Recorded, Failover, Results], output: Output) -> None:
    recorded, failover, results = found
    if output is Output.JSON:
        print_json(
            {
                "published": recorded.published,
                "records": recorded.records,
                "bytes": recorded.bytes,
                "failover": asdict(failover),
                "seconds": {name: round(took, 3) for name, took in run.seconds.items()},
                "summary": results_json(results),
            }
        )
        return
    run.screen.print("\n[bold]Where the time went[/]")
    rows = [(name, f"{took:.1f} s") for name, took in run.seconds.items()]
    rows.append(("in all", f"{sum(run.seconds.values()):.1f} s"))
    run.screen.print(table(("step", "time"), rows, right=("time",)))
    sys.stdout.write(
        "\nThe processes and files of the demo are removed. To go on by hand: tidelog dev --brokers 3\n"
    )
