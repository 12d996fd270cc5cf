"""``tidelog cluster``, the commands for one broker: cordon, drain, prepare-stop, unregister, voters."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import typer

import tidelog
from tidelog.cli.cluster.unknown_brokers import not_registered, of_brokers
from tidelog.cli.completion import broker_ids
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output, console, example, print_json
from tidelog.cli.values import duration_ms
from tidelog.cli.watching import TIMEOUT, WAIT, watched
from tidelog.model import ClusterDescription, StopAnswer
from tidelog.wording import count_of

EXAMPLES = {
    "cordon": "tidelog cluster cordon 2",
    "uncordon": "tidelog cluster uncordon 2",
    "drain": "tidelog cluster drain 2 --wait",
    "prepare-stop": "tidelog cluster prepare-stop 2 --timeout 60s",
    "unregister": "tidelog cluster unregister 2 --yes",
    "add-voter": "tidelog cluster add-voter 3",
    "remove-voter": "tidelog cluster remove-voter 0",
}

BROKER: Any = typer.Argument(min=0, max=(1 << 31) - 1, help="The broker's number.", autocompletion=broker_ids)


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module."""
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
    """Give a broker no new replicas and leaders.

    Its replicas stay. It leads a partition only if no other broker can.
    """
    _do(server, output, broker, lambda client: client.cordon(broker), "is cordoned")


def uncordon(broker: int = BROKER, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Give a broker replicas and leaders again.

    This ends the cordon that `cluster cordon` or `cluster drain` began.
    """
    _do(server, output, broker, lambda client: client.uncordon(broker), "is not cordoned")


def drain(
    broker: int = BROKER,
    wait: bool = WAIT,
    timeout: str = TIMEOUT,
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Cordon a broker and move all its replicas away.

    The replicas and leaders of the broker, and its vote on the metadata, move to other brokers. The command
    returns at once. With --wait it returns when the broker is empty and can be unregistered. To cancel the
    drain, use `cluster uncordon` and `cluster reassignments --cancel`.
    """
    duration_ms(timeout, "--timeout")

    async def begin(client: tidelog.Client) -> int:
        async def left() -> int:
            # Replicas that could not begin to move before begin now.
            return (await client.drain(broker)).replicas_left

        count = await left()
        if wait:
            on_it = f"left on broker {broker}"
            await watched(left, f"replica {on_it}", f"replicas {on_it}", timeout)
            count = 0
        return count

    count = connected(server, lambda client: of_brokers(client, [broker], begin(client)))
    if output is Output.JSON:
        print_json({"broker_id": broker, "replicas_left": count})
    elif count:
        sys.stdout.write(f"broker {broker} is being drained; {count_of(count, 'replica')} left\n")
    else:
        sys.stdout.write(f"broker {broker} is drained\n")


def prepare_stop(
    broker: int = BROKER,
    timeout: str = typer.Option("30s", "--timeout", help="How long to wait until the broker can stop."),
    undo: bool = typer.Option(
        False, "--undo", help="End the state `stopping`: the broker may lead and join ISRs again."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Wait until a broker can stop; move leaders away.

    A broker can stop when every partition keeps enough copies in sync without it. If the broker must not stop
    yet, the command says why and ends with code 4. If several brokers are prepared at the same time, they may
    stop one after the other.

    A prepared broker is `stopping`: it leads no partition and joins no ISR. This ends when the broker starts
    again. If you do not stop the broker, cancel this state with --undo; `cluster elect` then gives its
    leaders back.
    """
    if undo:
        outcome = "is not stopping; `tidelog cluster elect` gives it its leaderships back"
        _do(server, output, broker, lambda client: client.cancel_stop(broker), outcome)
        return
    seconds = duration_ms(timeout, "--timeout") / 1000
    answer = connected(
        server, lambda client: of_brokers(client, [broker], client.prepare_stop(broker, seconds))
    )
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
                "It leads no partition until it starts again. "
                f"To cancel: tidelog cluster prepare-stop {broker} --undo\n"
            )
    if not answer.ready:
        raise typer.Exit(Exit.UNAVAILABLE)


def unregister(
    broker: int = BROKER,
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Remove a broker from the cluster for good.

    The cluster refuses this while the broker is alive and holds replicas: drain it first. If the broker is
    gone, committed records that only this broker held are lost.
    """

    async def remove(client: tidelog.Client) -> None:
        if not yes:
            _ask(broker, _replicas_given_up(await client.describe_cluster(), broker))
        await client.unregister_broker(broker)

    _do(server, output, broker, remove, "is no longer part of the cluster")


def _replicas_given_up(cluster: ClusterDescription, broker: int) -> int:
    """How many replicas an unregistration gives up; ends the command if the cluster would refuse it."""
    standing = next((one for one in cluster.standings if one.broker_id == broker), None)
    if standing is None:
        raise not_registered(broker, cluster)
    if standing.replicas and standing.state != "fenced":
        held = count_of(standing.replicas, "replica")
        fail(f"broker {broker} is alive and holds {held}; drain it or stop it first", Exit.USAGE)
    if cluster.voters == (broker,):
        fail(
            f"broker {broker} is the only one that votes on the metadata; add another voter first", Exit.USAGE
        )
    return standing.replicas


def _ask(broker: int, held: int) -> None:
    loss = f"Its {count_of(held, 'replica')} will be given up." if held else "It holds no replicas."
    if not sys.stdin.isatty():
        fail(f"unregistering broker {broker} is final. {loss} Confirm with --yes", Exit.USAGE)
    if not typer.confirm(f"Unregister broker {broker} for good? {loss}", err=True):
        fail(f"nothing was changed: broker {broker} stays in the cluster")


def add_voter(broker: int = BROKER, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Make a broker vote on the metadata.

    The broker votes after it has caught up, in place of a voter that was not chosen with this command. The
    number of voters is the setting `voters` of the brokers. `cluster describe` shows which brokers vote.
    """
    _do(server, output, broker, lambda client: client.add_voter(broker), "will vote when it has caught up")


def remove_voter(broker: int = BROKER, server: str = SERVER, output: Output = OUTPUT) -> None:
    """Make a broker stop voting on the metadata.

    The broker stops voting when another broker votes in its place. It continues to follow the metadata. The
    cluster refuses this if no other broker can vote: an even number of voters tolerates no more failures than
    one voter fewer.
    """
    outcome = "will stop voting when another broker votes in its place"
    _do(server, output, broker, lambda client: client.remove_voter(broker), outcome)


def _do(
    server: str,
    output: Output,
    broker: int,
    work: Callable[[tidelog.Client], Awaitable[None]],
    outcome: str,
) -> None:
    connected(server, lambda client: of_brokers(client, [broker], work(client)))
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
