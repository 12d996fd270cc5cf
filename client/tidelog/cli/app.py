"""The tree of commands, and the only place where errors become exit codes."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from tidelog import errors
from tidelog.cli.access import acl, quota, token, whoami
from tidelog.cli.cluster import command as cluster
from tidelog.cli.connection import TLS_VARIABLES, TOKEN_FILE_VARIABLE, use_tls, use_token
from tidelog.cli.demo import command as demo
from tidelog.cli.errors import CommandError, Exit, exit_code, sentence
from tidelog.cli.local import dev
from tidelog.cli.output import example
from tidelog.cli.records import consume, dump, produce
from tidelog.cli.stream import command as stream
from tidelog.cli.verify import command as verify

app = typer.Typer(
    name="tidelog",
    help="Tidelog: a durable log for NATS, with Arrow from producer to Spark.",
    epilog=example("tidelog dev"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            sys.stdout.write(f"tidelog {importlib.metadata.version('tidelog')}\n")
        except importlib.metadata.PackageNotFoundError:
            sys.stdout.write("tidelog (not installed as a package)\n")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
    ),
    debug: bool = typer.Option(
        False, "--debug", envvar="TIDELOG_DEBUG", help="Show the traceback of an error after its message."
    ),
    tls: bool = typer.Option(
        False,
        "--tls",
        envvar=TLS_VARIABLES["tls"],
        help="Connect with TLS. Each of the following options implies it.",
    ),
    tls_authorities: str = typer.Option(
        "",
        metavar="FILE",
        envvar=TLS_VARIABLES["authorities"],
        help="The authorities that sign the certificates of brokers (PEM). Empty: public authorities.",
    ),
    tls_certificate: str = typer.Option(
        "",
        metavar="FILE",
        envvar=TLS_VARIABLES["certificate"],
        help="The certificate to show to brokers (PEM).",
    ),
    tls_key: str = typer.Option(
        "", metavar="FILE", envvar=TLS_VARIABLES["key"], help="The private key of that certificate (PEM)."
    ),
    token_file: str = typer.Option(
        "",
        metavar="FILE",
        envvar=TOKEN_FILE_VARIABLE,
        help="The file of the token to send, for a cluster with authentication.",
    ),
) -> None:
    context.obj["debug"] = debug
    use_tls(tls, authorities=tls_authorities, certificate=tls_certificate, key=tls_key)
    use_token(token_file)


app.add_typer(stream.app, name="stream")
app.add_typer(cluster.app, name="cluster")
app.add_typer(acl.app, name="acl")
app.add_typer(token.app, name="token")
app.add_typer(quota.app, name="quota")
app.command("whoami", epilog=example(whoami.EXAMPLE))(whoami.whoami)
app.command("dev", epilog=example(dev.EXAMPLE))(dev.dev)
app.command("demo", epilog=example(demo.EXAMPLE))(demo.demo)
app.command("produce", epilog=example(produce.EXAMPLE))(produce.produce)
app.command("consume", epilog=example(consume.EXAMPLE))(consume.consume)
app.command("dump", epilog=example(dump.EXAMPLE))(dump.dump)
app.command("verify", epilog=example(verify.EXAMPLE))(verify.verify)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Prints a traceback only with ``--debug``."""
    try:
        return _run(arguments)
    except BrokenPipeError:
        # Python flushes standard output once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE


def _run(arguments: Sequence[str]) -> int:
    common = {"debug": False}
    command: Any = typer.main.get_command(app)
    try:
        result = command.main(list(arguments), prog_name="tidelog", standalone_mode=False, obj=common)
        sys.stdout.flush()
        return result if isinstance(result, int) else Exit.OK
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except SystemExit as end:
        # Typer ends a completion in this way, and a write into a closed pipe.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        return end.code if isinstance(end.code, int) else Exit.FAILED
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(f"{error}\n")
            return Exit.USAGE
        message, code = _explained(error)
        sys.stdout.flush()
        sys.stderr.write(f"tidelog: {sentence(message)}\n")
        if common["debug"]:
            traceback.print_exception(error, file=sys.stderr)
        return code


def _explained(error: Any) -> tuple[str, int]:
    """The message for an error, and the exit code."""
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, errors.TidelogError):
        return _with_advice(error), exit_code(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", Exit.ENVIRONMENT
    if hasattr(error, "format_message"):
        # A wrong command line. Typer's class for it is not public in every version.
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "tidelog"
        said = error.format_message().replace("Value error, ", "").rstrip(".")
        stop = "" if said.endswith("?") else "."
        return f"{said}{stop} See {path} --help", Exit.USAGE
    return f"this is a bug in tidelog ({type(error).__name__}: {error}); --debug shows where", Exit.FAILED


def _with_advice(error: errors.TidelogError) -> str:
    if isinstance(error, errors.IndefiniteError):
        return f"{error.message} (the request may or may not have taken effect)"
    return error.message
