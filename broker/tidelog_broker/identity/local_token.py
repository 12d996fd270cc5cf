"""A token in a file of the data directory, with which commands on the broker's machine call it.

It stands for the broker itself: a program that can read the data directory can read all records anyway.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from tidelog.errors import Unauthenticated
from tidelog_broker.errors import BrokerError
from tidelog_broker.identity.identity import Identity

FILE_NAME: Final = "local-token"

PREFIX: Final = "tll_"

SECRET_BYTES: Final = 32

FILE_BYTES_MAX: Final = 256


class LocalToken:
    """The token of this run."""

    def __init__(self, token: str, broker_id: int) -> None:
        self._token = token.encode()
        self._identity = Identity(f"broker:{broker_id}")

    def __repr__(self) -> str:
        return f"<LocalToken of {self._identity.principal}>"

    @classmethod
    def create(cls, folder: Path, broker_id: int) -> LocalToken:
        """Makes a new token and writes it into the data directory. Blocking. Raises OSError."""
        token = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        path = folder / FILE_NAME
        beside = path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
        beside.replace(path)
        return cls(token, broker_id)

    def takes(self, token: str) -> bool:
        return token.startswith(PREFIX)

    async def identity_of(self, token: str) -> Identity:
        if not hmac.compare_digest(token.encode(), self._token):
            raise Unauthenticated("the local token of this call is not the one of this run of the broker")
        return self._identity


def read_local_token(folder: Path) -> str:
    """The token of the broker that runs on this data directory. Raises `BrokerError`."""
    path = folder / FILE_NAME
    try:
        with path.open() as file:
            return file.read(FILE_BYTES_MAX).strip()
    except OSError as error:
        raise BrokerError(
            f"{path} cannot be read: {error.strerror}. A broker with authentication writes it at its start; "
            "check data_dir, and run this command as the user of the broker"
        ) from None
