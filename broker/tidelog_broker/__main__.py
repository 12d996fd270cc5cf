"""The command ``tidelog-broker``: formats a data directory, runs a broker, prepares its stop, and recovers a
data directory that failed."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog

from tidelog.large_blocks import keep_large_blocks
from tidelog.without_pandas import leave_pandas_out
from tidelog.wording import count_of, listed
from tidelog_broker.config.loading import load
from tidelog_broker.config.sentences import SettingsInvalid, default_text, parse_broker_id
from tidelog_broker.config.settings import Settings
from tidelog_broker.errors import BrokerError, DirectoryDamaged

THREAD_TURN_SECONDS = 0.001
"""How long a thread that computes keeps the interpreter's lock while the event loop wants it."""

GRPC_EXPERIMENTS = "-event_engine_client,-event_engine_listener"
"""Parts of gRPC that the broker turns off (`poll_in_place`)."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
"""The data directory cannot be trusted and must be emptied. The operator acts on this code."""
EXIT_INTERRUPTED = 130
"""As in shells: 128 plus the number of SIGINT."""

EXIT_CODES = (
    "Exit codes: 0 done, or stopped by SIGTERM or Ctrl-C while running; 1 failed; "
    "2 wrong usage or settings; 3 the data directory is damaged or was put back from a copy; "
    "130 interrupted by Ctrl-C before it was done."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and exits with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Runs the command and returns one of the exit codes above. Errors go to standard error, a sentence each.

    An unexpected error is raised: its trace says more than a sentence.
    """
    try:
        options = _parser().parse_args(arguments)
        return int(options.command(options))
    except SettingsInvalid as error:
        for problem in error.problems:
            print(f"tidelog-broker: {problem}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    except (BrokerError, OSError) as error:
        print(f"tidelog-broker: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_DAMAGED if isinstance(error, DirectoryDamaged) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _version() -> str:
    try:
        return version("tidelog")
    except PackageNotFoundError:  # run from its source folder, without having been installed
        return "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidelog-broker",
        description="A Tidelog broker. First `format` a data directory, then `run` on it.",
        epilog="Example: tidelog-broker format --data-dir ./data && tidelog-broker run --data-dir ./data. "
        + EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"tidelog-broker {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    runs = commands.add_parser(
        "run",
        help="run a broker until SIGTERM",
        epilog="Example: tidelog-broker run --data-dir ./data --nats nats://127.0.0.1:4222",
    )
    _add_settings(runs)
    runs.set_defaults(command=_run)

    stops = commands.add_parser(
        "prepare-stop",
        help="wait until the broker with these settings can be stopped",
        description="Asks the broker that runs with these settings on this machine to hand over the "
        "partitions that it leads, and waits until every partition has enough copies in sync without it. It"
        " is for the preStop hook of a pod. It reads the settings as `run` does. It exits with 0 if the "
        "broker can stop, otherwise with 1.",
        epilog="Example: tidelog-broker prepare-stop --config broker.yaml --timeout-seconds 60",
    )
    stops.add_argument(
        "--timeout-seconds",
        type=int,
        default=60,
        metavar="SECONDS",
        help="how long to wait, from 0 to 600. Default: 60.",
    )
    _add_settings(stops)
    stops.set_defaults(command=_prepare_stop)

    formats = commands.add_parser(
        "format",
        help="create an empty data directory, once",
        description="Creates the data directory of a new cluster with one broker. Refuses a directory "
        "that holds data.",
        epilog="Example: tidelog-broker format --data-dir ./data",
    )
    formats.add_argument(
        "--data-dir", type=Path, required=True, help="the folder to format; the command creates it"
    )
    formats.add_argument("--broker-id", default="0", help="the id of this broker. Default: 0.")
    formats.set_defaults(command=_format)

    recovers = commands.add_parser(
        "recover",
        help="make a data directory usable after a failed flush",
        description="After a failed flush it is unknown what the disk holds. This command reads everything "
        "behind the recovery points, writes it into new files, flushes them, and removes the FAILED mark. "
        "Run it when the disk is sound. Replicas of page-cache streams may lack records that they "
        "acknowledged: at the next start they leave the in-sync set and catch up with the others. Without a"
        " FAILED mark it changes nothing, unless you give --force: a failing disk may not have stored the "
        "mark.",
        epilog="Example: tidelog-broker recover --data-dir ./data",
    )
    recovers.add_argument("--data-dir", type=Path, required=True, help="the data directory of the broker")
    recovers.add_argument("--force", action="store_true", help="recover even without a FAILED mark")
    recovers.set_defaults(command=_recover)

    quorum = commands.add_parser(
        "cluster-recover",
        help="recover the metadata when most voters are lost for good",
        description="When most of the brokers that vote on the metadata are lost for good, makes this "
        "broker, which must be a voter, the only voter. Without --force it only shows what its metadata log"
        " holds: of the voters that are left, choose the one with the greatest last entry (term, then "
        "index). Changes that only the lost brokers had are lost, and they must never start with their old "
        "data directories again: empty these first. Brokers whose metadata log is longer than the recovered"
        " one set it aside when they start; a broker that voted does so only with --start-over. Run the "
        "command while the broker is stopped.",
        epilog="Example: tidelog-broker cluster-recover --data-dir ./data --force",
    )
    quorum.add_argument("--data-dir", type=Path, required=True, help="the data directory of the broker")
    what = quorum.add_mutually_exclusive_group()
    what.add_argument(
        "--force",
        action="store_true",
        help="make this broker the only voter; without --force nothing is changed",
    )
    what.add_argument(
        "--start-over",
        action="store_true",
        help="instead: set the metadata log of this broker aside, so that it gets the metadata of a cluster"
        " that was recovered on another voter; changes that only this log has are given up, and records "
        "stay",
    )
    quorum.add_argument("--json", action="store_true", help="print the report as JSON")
    quorum.set_defaults(command=_recover_quorum)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, help="a YAML file with these settings; flags and TIDELOG_* win over it"
    )
    for name, field in Settings.model_fields.items():
        flag = f"--{name.replace('_', '-')}"
        text = (field.description or "").replace("%", "%%")
        default = default_text(name)
        if default:
            text += f" Default: {default}."
        kwargs: dict[str, Any] = {"default": None, "dest": f"setting_{name}", "help": text}
        if field.annotation is bool:
            kwargs |= {"action": argparse.BooleanOptionalAction}
        elif name == "listeners":
            flag, kwargs = "--listener", kwargs | {"action": "append", "metavar": "NAME=HOST:PORT"}
        else:
            kwargs |= {"metavar": name.rsplit("_", 1)[-1].upper()}
        parser.add_argument(flag, **kwargs)


def _settings(options: argparse.Namespace) -> Settings:
    """Raises `SettingsInvalid`."""
    given = {
        name.removeprefix("setting_"): value
        for name, value in vars(options).items()
        if name.startswith("setting_") and value is not None
    }
    return load(options.config, **given)


def _run(options: argparse.Namespace) -> int:
    settings = _settings(options)
    prepare_grpc()
    leave_pandas_out()
    import uvloop

    from tidelog_broker.service import serve

    configure_logging(settings)
    keep_large_blocks()
    # The default is 5 ms, and each turn of the event loop may wait for it several times.
    sys.setswitchinterval(THREAD_TURN_SECONDS)
    # Loaded modules: garbage collections of the start need not look at them (`limits.collector`).
    gc.freeze()
    return uvloop.run(serve(settings))


def _prepare_stop(options: argparse.Namespace) -> int:
    settings = _settings(options)
    prepare_grpc()
    from tidelog_broker.prepare_stop import TIMEOUT_SECONDS_MAX, prepare_stop

    seconds = options.timeout_seconds
    if not 0 <= seconds <= TIMEOUT_SECONDS_MAX:
        raise SettingsInvalid(
            [f"--timeout-seconds is {seconds}; write a whole number from 0 to {TIMEOUT_SECONDS_MAX}"]
        )
    outcome = prepare_stop(settings, seconds)
    print(outcome.sentence)  # noqa: T201
    return 0 if outcome.ready else EXIT_FAILED


def _format(options: argparse.Namespace) -> int:
    from tidelog.model import id_text
    from tidelog_broker.offline.formatting import format_solo
    from tidelog_broker.storage.files.os_files import OsFiles

    broker_id = parse_broker_id(options.broker_id)
    cluster_id = uuid4().bytes
    format_solo(
        OsFiles(),
        str(options.data_dir.resolve()),
        cluster_id=cluster_id,
        broker_id=broker_id,
        directory_id=uuid4().bytes,
    )
    print(f"formatted {options.data_dir} for broker {broker_id} of cluster {id_text(cluster_id)}")  # noqa: T201
    return 0


def _recover(options: argparse.Namespace) -> int:
    from tidelog_broker.offline.rewrite import recover_data_directory
    from tidelog_broker.storage.directory.data_directory import DataDirectory
    from tidelog_broker.storage.files.os_files import OsFiles

    files, path = OsFiles(), str(options.data_dir.resolve())
    directory = DataDirectory.open_to_recover(files, path)
    try:
        marked = directory.failure() is not None
    finally:
        directory.close()
    if not marked and not options.force:
        nothing = "has no FAILED mark, so there is nothing to recover. Give --force to recover it anyway."
        print(f"{options.data_dir} {nothing}")  # noqa: T201
        return 0
    configure_logging(None)
    for line in recover_data_directory(files, path):
        print(line)  # noqa: T201
    return 0


def _recover_quorum(options: argparse.Namespace) -> int:
    import json

    from tidelog.model import id_text
    from tidelog_broker.offline.quorum_losses import sentences
    from tidelog_broker.offline.quorum_recovery import recover_quorum, start_over
    from tidelog_broker.storage.directory.data_directory import DataDirectory
    from tidelog_broker.storage.files.os_files import OsFiles

    configure_logging(None)
    directory = DataDirectory.open(OsFiles(), str(options.data_dir.resolve()))
    try:
        report = (
            start_over(directory) if options.start_over else recover_quorum(directory, force=options.force)
        )
    finally:
        directory.close()
    if options.json:
        facts = report._asdict() | {
            "cluster_id": id_text(report.cluster_id),
            "alone": report.alone,
            "sentences": sentences(report),
        }
        print(json.dumps(facts))  # noqa: T201
        return 0
    print(  # noqa: T201
        f"broker {report.broker_id} of cluster {id_text(report.cluster_id)}: last entry "
        f"({report.last_term}, {report.last_index}), committed at least up to {report.committed}; "
        f"{count_of(report.streams, 'stream')}; "
        f"brokers {listed(report.brokers)}; "
        f"voters {listed(report.voters)}"
    )
    for sentence in sentences(report):
        print(sentence)  # noqa: T201
    return 0


def prepare_grpc() -> None:
    """Sets what gRPC reads from the environment when it is imported. A value that is there already stays."""
    poll_in_place()
    # Otherwise each client that fails in a handshake writes a line into the log, in a form of gRPC's own.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def poll_in_place() -> None:
    """Makes gRPC read sockets in the thread that waits for events. To be called before gRPC is imported.

    Its own threads would pass every message on once more, which costs a fifth of a small call's latency
    here. A value that the environment already has stays.
    """
    os.environ.setdefault("GRPC_EXPERIMENTS", GRPC_EXPERIMENTS)


def configure_logging(settings: Settings | None) -> None:
    """Log lines go to standard error: for people, or as JSON."""
    level = settings.log_level if settings is not None else "info"
    json_lines = settings is not None and settings.log_json
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if json_lines
        # Plain traces: pretty traces print every local variable, among them megabytes of records.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if json_lines else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


if __name__ == "__main__":
    main()
