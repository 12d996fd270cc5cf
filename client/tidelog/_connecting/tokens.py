"""The token of a client: read again when its file changes, and sent with each call.

Neighbours: `broker_channel` makes its calls through `WithToken`; `tls` does the same for certificates.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import grpc.aio

from tidelog.errors import InvalidRequest

TOKEN_CHARACTERS_MAX: Final = 16 << 10


class Token:
    """The token that is sent."""

    def __init__(self, text: str = "", path: str | os.PathLike[str] = "") -> None:
        """`text`, or the file that holds it. Blocking. Raises `InvalidRequest`."""
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._text = _checked(text, "the token") if text else ""
        if path:
            self._read()

    def __repr__(self) -> str:
        return f"<Token of {self._path or 'the program'}>"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call sends. Looks at the file, which takes microseconds.

        A file that cannot be read, for example while it is being replaced, changes nothing.
        """
        if self._path:
            with contextlib.suppress(InvalidRequest):
                self._read()
        return self._sent

    @property
    def _sent(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._text}"),)

    def _read(self) -> None:
        try:
            if _stamp(os.stat(self._path)) == self._stamp:
                return
            with Path(self._path).open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                data = file.read(TOKEN_CHARACTERS_MAX + 1)
        except OSError as error:
            raise InvalidRequest(
                f"the token file {self._path} cannot be read: {error.strerror or error}",
                argument="token_file",
            ) from error
        text = data.decode("utf-8", "replace").strip()
        self._text, self._stamp = _checked(text, f"the token in {self._path}"), stamp


class WithToken:
    """A gRPC channel that sends a token with each call. It has what is used of a channel."""

    def __init__(self, channel: grpc.aio.Channel, token: Token) -> None:
        self._channel: Any = channel
        self._token = token

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._sending(self._channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._sending(self._channel.unary_stream(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._sending(self._channel.stream_stream(*args, **kwargs))

    def get_state(self) -> grpc.ChannelConnectivity:
        state: grpc.ChannelConnectivity = self._channel.get_state()
        return state

    async def close(self, grace: float | None) -> None:
        await self._channel.close(grace)

    def _sending(self, call: Any) -> Any:
        return lambda *args, **kwargs: call(*args, metadata=self._token.metadata, **kwargs)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    """Differs when the file was replaced or written."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def _checked(text: str, what: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidRequest(f"{what} is not a token; give printable text without spaces", argument="token")
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise InvalidRequest(f"{what} has more than {TOKEN_CHARACTERS_MAX} characters", argument="token")
    return text
