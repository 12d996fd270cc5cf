"""The tree of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from tidelog import errors
from tidelog.cli import cluster, consume, demo, dev, dump, produce, stream, verify
from tidelog.cli._errors import CommandError, Exit, exit_code, sentence
from tidelog.cli._output import example

app = typer.Typer(
    name="tidelog",
    help="A replicated, durable log for NATS, with Arrow from producer to Spark.",
    epilog=example("tidelog dev"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _common(
    debug: bool = typer.Option(
        False, "--debug", envvar="TIDELOG_DEBUG", help="Show the traceback of an error below its sentence."
    ),
) -> None:
    if debug:
        os.environ["TIDELOG_DEBUG"] = "1"


app.add_typer(stream.app, name="stream")
app.add_typer(cluster.app, name="cluster")
app.command("dev", epilog=example(dev.EXAMPLE))(dev.dev)
app.command("demo", epilog=example(demo.EXAMPLE))(demo.demo)
app.command("produce", epilog=example(produce.EXAMPLE))(produce.produce)
app.command("consume", epilog=example(consume.EXAMPLE))(consume.consume)
app.command("dump", epilog=example(dump.EXAMPLE))(dump.dump)
app.command("verify", epilog=example(verify.EXAMPLE))(verify.verify)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; returns its exit code. Never raises, never prints a traceback unasked."""
    try:
        return _run(arguments)
    except BrokenPipeError:
        # Python flushes standard output once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE


def _run(arguments: Sequence[str]) -> int:
    try:
        result = typer.main.get_command(app).main(list(arguments), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except CommandError as error:
        return _report(error, str(error), error.code)
    except errors.TidelogError as error:
        return _report(error, _with_advice(error), exit_code(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _report(error, f"{where}{error.strerror or error}", Exit.ENVIRONMENT)
    except typer.Abort:
        return Exit.INTERRUPTED
    except Exception as error:
        if hasattr(error, "format_message"):
            return _usage(error)
        kind = type(error).__name__
        return _report(error, f"a bug in tidelog ({kind}: {error}); --debug shows where", Exit.FAILED)
    return result if isinstance(result, int) else Exit.OK


def _usage(error: Any) -> int:
    """What typer makes of a wrong command line; its own class is not public in every version."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(f"{error.format_message()}\n")
        return Exit.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tidelog"
    return _report(error, f"{error.format_message().rstrip('.')}; see {path} --help", Exit.USAGE)


def _with_advice(error: errors.TidelogError) -> str:
    if isinstance(error, errors.IndefiniteError):
        return f"{error.message} (it may or may not have taken effect)"
    return error.message


def _report(error: BaseException, message: str, code: Exit) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"tidelog: {sentence(message)}\n")
    if os.environ.get("TIDELOG_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    sys.stderr.flush()
    return code
