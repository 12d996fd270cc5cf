"""``tidelog cluster``, the commands for streams: elect leaders, move replicas, and watch the moves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

import tidelog
from tidelog.cli.cluster.output import moves_table, partition_json
from tidelog.cli.cluster.unknown_brokers import not_registered, of_brokers
from tidelog.cli.completion import broker_ids, stream_names
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output, console, example, print_json
from tidelog.cli.values import duration_ms, size_bytes
from tidelog.cli.watching import TIMEOUT, WAIT, watched
from tidelog.model import PartitionStanding
from tidelog.model.replica_lag import LOST_STATES, UNREACHABLE
from tidelog.wording import count_of, listed

EXAMPLES = {
    "elect": "tidelog cluster elect orders",
    "reassign": "tidelog cluster reassign orders --replicas 0=1,2,3 --wait",
    "reassignments": "tidelog cluster reassignments",
    "throttle": "tidelog cluster throttle 20MiB",
}

PARTITION_MAX = (1 << 31) - 1

STREAMS: Any = typer.Argument(
    None, help="Only these streams; without them, all streams.", autocompletion=stream_names
)
YES: Any = typer.Option(False, "--yes", "-y", help="Do not ask.")


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    for command in (elect, reassign, reassignments, throttle):
        app.command(epilog=example(EXAMPLES[command.__name__]))(command)


def elect(
    streams: list[str] | None = STREAMS,
    unclean: str = typer.Option(
        "", "--unclean", help="STREAM/PARTITION: elect --broker, although it may lack committed records."
    ),
    broker: int | None = typer.Option(
        None,
        "--broker",
        min=0,
        max=PARTITION_MAX,
        autocompletion=broker_ids,
        help="With --unclean: the broker that will lead.",
    ),
    yes: bool = YES,
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Give leadership back to the preferred leaders.

    The preferred leader of a partition is the first of its replicas.

    With --unclean, you choose a leader that may lack committed records. The records that it lacks are lost.
    Use this option only if no broker that has these records will come back. The cluster refuses it while such
    a broker is available.
    """
    if not unclean:
        if broker is not None:
            fail("--broker needs --unclean", Exit.USAGE)
        found = connected(server, lambda client: client.elect_preferred(streams or ()))
        _show(found, output, "nothing to do: preferred leaders lead wherever they can")
        return
    if streams or broker is None:
        fail("--unclean STREAM/PARTITION needs --broker, and no other streams", Exit.USAGE)
    name, number = _partition(unclean, "--unclean")

    async def force(client: tidelog.Client) -> list[PartitionStanding]:
        cluster = await client.describe_cluster()
        if broker not in [one.broker_id for one in cluster.brokers]:
            raise not_registered(broker, cluster)
        loss = await _loss(client, name, number, broker)
        if not yes:
            _ask(f"Let broker {broker} lead {name}/{number}? {loss}")
        else:
            sys.stderr.write(f"{loss}\n")
        return await client.elect_unclean(name, number, broker)

    _show(connected(server, force), output, "nothing was changed")


async def _loss(client: tidelog.Client, name: str, number: int, broker: int) -> str:
    """What an unclean election loses, as far as it is known."""
    replicas = [one for one in await client.describe_replicas(name) if one.partition == number]
    mine = next((one for one in replicas if one.broker_id == broker), None)
    if mine is not None and mine.state in LOST_STATES:
        kept = f"Broker {broker} has no usable log of {name}/{number}: its replica is {mine.state}"
        end = 0
    elif mine is None or mine.state == UNREACHABLE:
        kept = f"It is not known which records broker {broker} holds"
        end = 0
    else:
        end = mine.log_end_offset
        kept = f"Broker {broker} holds the records below offset {end}"
    known = max((one.high_watermark for one in replicas), default=0)
    beyond = (
        f", and at least {count_of(known - end, 'later record was', 'later records were')} committed"
        if known > end
        else ""
    )
    away = [one.broker_id for one in replicas if one.state == UNREACHABLE and one.broker_id != broker]
    which = f"broker{'s' if len(away) > 1 else ''} {listed(away)}"
    others = f"; {which} may hold more, but {'do' if len(away) > 1 else 'does'} not answer" if away else ""
    return f"{kept}{beyond}{others}. Every other committed record is lost for good."


def reassign(
    streams: list[str] | None = STREAMS,
    replicas: list[str] | None = typer.Option(
        None,
        "--replicas",
        help="PARTITION=BROKER,BROKER,… for one stream; the preferred leader comes first. Repeatable.",
    ),
    brokers: str = typer.Option(
        "", "--brokers", help="Spread over these brokers (1,2,3); without it, over all that are not cordoned."
    ),
    moves_max: int | None = typer.Option(
        None, "--moves-max", min=1, max=PARTITION_MAX, help="Move at most this many replicas."
    ),
    validate_only: bool = typer.Option(
        False, "--validate-only", help="Show what would move; change nothing."
    ),
    wait: bool = WAIT,
    timeout: str = TIMEOUT,
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Move replicas to other brokers, or spread them evenly.

    With --replicas, copies move to the brokers that you name. Without it, copies move so that every broker
    holds about the same number of copies. New copies catch up and join before old copies are removed, so a
    partition never has fewer copies than requested. The command returns at once. With --wait it returns when
    all moves are done.
    """
    duration_ms(timeout, "--timeout")
    targets = _targets(streams or [], replicas or [])
    if targets and (brokers or moves_max is not None):
        fail("--brokers and --moves-max cannot be used together with --replicas", Exit.USAGE)
    over = _broker_ids(brokers, "--brokers") if brokers else []

    async def begin(client: tidelog.Client) -> list[PartitionStanding]:
        if targets:
            begun = await of_brokers(
                client,
                [broker for brokers in targets.values() for broker in brokers],
                client.reassign(targets, validate_only=validate_only),
            )
        else:
            spread = client.spread(
                streams or (), brokers=over, moves_max=moves_max, validate_only=validate_only
            )
            begun = await of_brokers(client, over, spread)
        if wait and begun and not validate_only:
            begun_keys = {(one.stream_id, one.partition.partition): None for one in begun}

            async def left() -> int:
                moving = await client.list_reassignments()
                return sum((one.stream_id, one.partition.partition) in begun_keys for one in moving)

            await watched(left, "partition still moves", "partitions still move", timeout)
        return begun

    _show(connected(server, begin), output, "nothing to move")


def reassignments(
    streams: list[str] | None = STREAMS,
    cancel: bool = typer.Option(
        False, "--cancel", help="Cancel the moves: go back to the replicas from before."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Show replicas that move, or cancel the moves."""

    async def ask(client: tidelog.Client) -> list[PartitionStanding]:
        if cancel:
            return await client.cancel_reassignment((name, None) for name in streams or ())
        return await client.list_reassignments(streams or ())

    _show(connected(server, ask), output, "nothing moves")


def throttle(
    rate: str = typer.Argument(
        help="Bytes a second between two brokers, for example 20MiB; 0: each broker's own setting."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Limit how fast replicas that lag far behind catch up.

    For example, new copies on a broker lag far behind. Followers that keep up are never slowed down. The
    limit takes effect at once, also for moves that have begun already, and stays until you change it.
    """
    bytes_per_second = size_bytes(rate, "RATE")
    connected(server, lambda client: client.throttle(bytes_per_second))
    if output is Output.JSON:
        print_json({"throttle_bytes_per_second": bytes_per_second or None})
        return
    limit = f"{rate} a second from broker to broker" if bytes_per_second else "each broker's own setting"
    sys.stdout.write(f"limit for replicas that lag far behind: {limit}\n")


def _show(partitions: Sequence[PartitionStanding], output: Output, nothing: str) -> None:
    if output is Output.JSON:
        print_json([partition_json(one) for one in partitions])
    elif partitions:
        console().print(moves_table(partitions))
    else:
        sys.stdout.write(f"{nothing}\n")


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        fail(f"{question} Confirm with --yes", Exit.USAGE)
    if not typer.confirm(question, err=True):
        fail("nothing was changed")


def _partition(text: str, option: str) -> tuple[str, int]:
    name, slash, number = text.rpartition("/")
    if not slash or not name or not _is_number(number):
        fail(f"{option}: {text!r} is not a partition; write it like orders/0", Exit.USAGE)
    return name, int(number)


def _targets(streams: Sequence[str], replicas: Sequence[str]) -> dict[tuple[str, int], list[int]]:
    if replicas and len(streams) != 1:
        fail("--replicas needs exactly one stream", Exit.USAGE)
    targets: dict[tuple[str, int], list[int]] = {}
    for text in replicas:
        number, equals, brokers = text.partition("=")
        if not equals or not _is_number(number):
            fail(f"--replicas: {text!r} is not PARTITION=BROKER,…; write it like 0=1,2,3", Exit.USAGE)
        key = (streams[0], int(number))
        if key in targets:
            fail(f"--replicas: partition {number} is given twice", Exit.USAGE)
        targets[key] = _broker_ids(brokers, "--replicas")
    return targets


def _broker_ids(text: str, option: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_number, parts)):
        fail(f"{option}: {text!r} is not a list of brokers; write it like 1,2,3", Exit.USAGE)
    return [int(part) for part in parts]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= PARTITION_MAX
