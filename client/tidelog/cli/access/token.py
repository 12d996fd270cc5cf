"""``tidelog token``: tokens of users."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

import typer

from tidelog.access_admin import NewToken
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output, console, example, print_json, table
from tidelog.cli.values import duration_us, show_time_us
from tidelog.model import TokenDescription

app = typer.Typer(
    help="Tokens, with which users show who they are.",
    epilog=example("tidelog token create user:orders-writer --expires 90d"),
    no_args_is_help=True,
)


@app.command("create", epilog=example("tidelog token create user:orders-writer --expires 90d --file token"))
def create(
    user: str = typer.Argument(help="The principal, such as user:orders-writer."),
    expires: str = typer.Option("", help="After how long the token expires, such as 90d. Empty: never."),
    note: str = typer.Option("", help="What the token is for; `token list` shows it."),
    file: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Write the token to a new file that only you can read, and do not print it.",
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Make a token for a user, and show it once.

    The cluster keeps only a hash of the token. A token alone allows nothing: add rules for the user with
    `acl add`.
    """
    after_us = duration_us(expires) if expires else 0
    if after_us is None:
        fail(f"--expires is {expires!r}; give a duration such as 90d or 12h", Exit.USAGE)
    until = datetime.now(UTC) + timedelta(microseconds=after_us) if after_us else None
    # First: a token that cannot be shown must not exist.
    with _new_file(file) as target:
        made = connected(server, lambda client: client.create_token(user, expires=until, note=note))
        if target is not None:
            _write(made, target)
    if output is Output.JSON:
        shown = {} if file is not None else {"token": made.token}
        print_json({**shown, **_json(made.description)})
        return
    if file is None:
        sys.stdout.write(f"{made.token}\n")
    sys.stderr.write(
        f"token {made.description.token_id} of {user}, {_expiry(made.description)}. "
        + ("It is not shown again.\n" if file is None else f"It is in {file}.\n")
    )


@app.command("list", epilog=example("tidelog token list"))
def list_tokens(
    user: str = typer.Option("", help="Only tokens of this principal."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """List the tokens, without their secrets."""
    tokens = connected(server, lambda client: client.list_tokens(user))
    if output is Output.JSON:
        print_json([_json(token) for token in tokens])
        return
    rows = [
        (token.token_id, token.principal, show_time_us(token.created_us), _expiry(token), token.note)
        for token in tokens
    ]
    console().print(table(("id", "principal", "created", "expires", "note"), rows))


@app.command("delete", epilog=example("tidelog token delete 4f1c22a90b7de813"))
def delete(
    token_id: str = typer.Argument(metavar="ID", help="The id that `token list` shows."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Withdraw a token.

    No call can begin with it any more, and running calls end within two seconds.
    """
    token = connected(server, lambda client: client.delete_token(token_id))
    if output is Output.JSON:
        print_json(_json(token))
    else:
        sys.stdout.write(f"token {token.token_id} of {token.principal} is deleted\n")


@contextmanager
def _new_file(path: Path | None) -> Iterator[TextIO | None]:
    """A new file that only this user can read; it is removed if the command fails."""
    if path is None:
        yield None
        return
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fail(f"{path} exists already; give the name of a new file", Exit.CONFLICT)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", Exit.ENVIRONMENT)
    try:
        with open(made, "w", encoding="ascii") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write(made: NewToken, file: TextIO) -> None:
    try:
        file.write(made.token + "\n")
        file.flush()
    except OSError as error:
        fail(
            f"the token was made, but {file.name} cannot be written: {error.strerror}; withdraw the token "
            f"with `tidelog token delete {made.description.token_id}`",
            Exit.FAILED,
        )


def _expiry(token: TokenDescription) -> str:
    return f"expires {show_time_us(token.expires_us)}" if token.expires_us else "never expires"


def _json(token: TokenDescription) -> dict[str, Any]:
    return asdict(token)
