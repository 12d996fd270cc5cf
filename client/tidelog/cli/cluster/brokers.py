"""``tidelog cluster`` with a broker's number: cordon, drain, let it stop, unregister it, have it vote."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import typer

import tidelog
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output, console, example, print_json
from tidelog.cli.values import duration_ms
from tidelog.cli.watching import TIMEOUT, WAIT, watched
from tidelog.model import StopAnswer

EXAMPLES = {
    "cordon": "tidelog cluster cordon 2",
    "uncordon": "tidelog cluster uncordon 2",
    "drain": "tidelog cluster drain 2 --wait",
    "prepare-stop": "tidelog cluster prepare-stop 2 --timeout 60s",
    "unregister": "tidelog cluster unregister 2 --yes",
    "add-voter": "tidelog cluster add-voter 3",
    "remove-voter": "tidelog cluster remove-voter 0",
}

BROKER: Any = typer.Argument(min=0, max=(1 << 31) - 1, help="The broker's number.")


def add_to(app: typer.Typer) -> None:
    """Adds these commands."""
    for name, command in (
        ("cordon", cordon),
        ("uncordon", uncordon),
        ("drain", drain),
        ("prepare-stop", prepare_stop),
        ("unregister", unregister),
        ("add-voter", add_voter),
        ("remove-voter", remove_voter),
    ):
        app.command(name, epilog=example(EXAMPLES[name]))(command)


def cordon(broker: int = BROKER, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Have a broker get no new replicas, nor leaders where another can lead; what it holds stays."""
    _do(server, output, broker, lambda client: client.cordon(broker), "is cordoned")


def uncordon(broker: int = BROKER, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Have a broker get replicas and leaders again; ends what cordon or drain began."""
    _do(server, output, broker, lambda client: client.uncordon(broker), "is not cordoned")


def drain(
    broker: int = BROKER,
    wait: bool = WAIT,
    timeout: str = TIMEOUT,
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Cordon a broker and move everything away that it holds: replicas, leaders, its vote.

    It returns at once; with --wait, when the broker holds nothing any more and can be unregistered.
    `cluster uncordon` and `cluster reassignments --cancel` call it off.
    """
    duration_ms(timeout, "--timeout")

    async def begin(client: tidelog.Client) -> int:
        async def left() -> int:
            # Whatever could not begin yet begins now.
            return (await client.drain(broker)).replicas_left

        count = await left()
        if wait:
            await watched(left, f"replicas left on broker {broker}", timeout)
            count = 0
        return count

    count = connected(server, begin)
    if output is Output.JSON:
        print_json({"broker_id": broker, "replicas_left": count})
    elif count:
        sys.stdout.write(f"broker {broker} is being drained; {count} replicas are left\n")
    else:
        sys.stdout.write(f"broker {broker} is drained\n")


def prepare_stop(
    broker: int = BROKER,
    timeout: str = typer.Option("30s", "--timeout", help="How long to wait until the broker can stop."),
    undo: bool = typer.Option(False, "--undo", help="Undo it: the broker may lead and join ISRs again."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Wait until a broker can stop safely, and move its leaders away.

    Safely means that every partition keeps enough copies in sync. The command ends with code 4, and says
    why, if the broker must not stop yet. If several brokers are prepared at the same time, only one after
    the other may stop.

    A prepared broker is `stopping`: it leads nothing and joins no ISR. This ends when the broker starts
    again. If the broker will not be stopped after all, undo it with --undo; `cluster elect` then gives its
    leaders back.
    """
    if undo:
        outcome = "is not stopping; `tidelog cluster elect` gives its leaders back"
        _do(server, output, broker, lambda client: client.cancel_stop(broker), outcome)
        return
    seconds = duration_ms(timeout, "--timeout") / 1000
    answer = connected(server, lambda client: client.prepare_stop(broker, seconds))
    if output is Output.JSON:
        print_json(_stop_json(broker, answer))
    else:
        verdict = "can stop" if answer.ready else f"must not stop yet, after {timeout}"
        sys.stdout.write(f"broker {broker} {verdict}\n")
        for one in answer.hindrances:
            kind = "waits" if one.blocks else "note"
            console().print(f"{kind}: {one.name}/{one.partition}: {one.reason}", markup=False)
        if answer.hindrance_count > len(answer.hindrances):
            sys.stdout.write(f"and {answer.hindrance_count - len(answer.hindrances)} more\n")
        if answer.ready:
            sys.stdout.write(
                "It leads nothing until it starts again. "
                f"If it goes on after all: tidelog cluster prepare-stop {broker} --undo\n"
            )
    if not answer.ready:
        raise typer.Exit(Exit.UNAVAILABLE)


def unregister(
    broker: int = BROKER,
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Take a broker out of the cluster for good: nobody waits for what it holds any more.

    Refused while it is alive and holds replicas: drain it first. Of a broker that is gone, committed
    records that only it held are lost.
    """

    async def remove(client: tidelog.Client) -> None:
        if not yes:
            cluster = await client.describe_cluster()
            held = next((one.replicas for one in cluster.standings if one.broker_id == broker), 0)
            _ask(broker, held)
        await client.unregister_broker(broker)

    _do(server, output, broker, remove, "is not of the cluster any more")


def _ask(broker: int, held: int) -> None:
    warning = f"broker {broker} holds {held} replicas, which are given up" if held else "it holds nothing"
    if not sys.stdin.isatty():
        fail(f"unregistering broker {broker}: {warning}; confirm with --yes", Exit.USAGE)
    if not typer.confirm(f"Unregister broker {broker} for good? {warning.capitalize()}.", err=True):
        fail(f"broker {broker} stays")


def add_voter(broker: int = BROKER, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Have a broker vote on the metadata, once it has caught up, in place of one that nobody asked for.

    How many vote is the brokers' setting `voters`. `cluster describe` shows who does.
    """
    _do(server, output, broker, lambda client: client.add_voter(broker), "is to vote")


def remove_voter(broker: int = BROKER, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Have a broker not vote on the metadata, once another votes in its place; it goes on following.

    Refused if no other broker could: an even number of voters tolerates no more failures than one fewer.
    """
    _do(server, output, broker, lambda client: client.remove_voter(broker), "is not to vote")


def _do(
    server: str,
    output: Output,
    broker: int,
    work: Callable[[tidelog.Client], Awaitable[None]],
    outcome: str,
) -> None:
    connected(server, work)
    if output is Output.JSON:
        print_json({"broker_id": broker, "outcome": outcome})
    else:
        sys.stdout.write(f"broker {broker} {outcome}\n")


def _stop_json(broker: int, answer: StopAnswer) -> dict[str, Any]:
    return {
        "broker_id": broker,
        "ready": answer.ready,
        "hindrance_count": answer.hindrance_count,
        "hindrances": [
            {"stream": one.name, "partition": one.partition, "reason": one.reason, "blocks": one.blocks}
            for one in answer.hindrances
        ],
    }
