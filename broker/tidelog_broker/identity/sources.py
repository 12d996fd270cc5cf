"""Reads what other programs say of tokens: the API server of Kubernetes, the keys of a provider.

Both are asked a few times a minute, so the standard library in a thread is enough. No proxy is used, and no
redirection is followed: each would take the broker's own token to another server.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

ANSWER_SECONDS_MAX: Final = 5.0
"""For each step of a conversation, such as connecting or reading."""

ANSWER_BYTES_MAX: Final = 1 << 20


class KeyFile(NamedTuple):
    """A key set in a file."""

    path: Path

    def read(self) -> bytes:
        """Blocking. Raises OSError."""
        with self.path.open("rb") as file:
            return _bounded(file.read(ANSWER_BYTES_MAX + 1))


class KeyAddress(NamedTuple):
    """A key set at an https address."""

    url: str
    authorities: str = ""
    """A file with those that sign the server's certificate; empty: the public ones."""

    def read(self) -> bytes:
        """Blocking. Raises OSError."""
        return _ask(self.url, self.authorities, "GET")


class ApiServer(NamedTuple):
    """The API server of Kubernetes, as a pod sees it."""

    url: str
    token: Path
    """The file of this broker's own token. Kubernetes replaces it now and then."""
    authorities: str
    audience: str

    def review(self, token: str) -> dict[str, Any]:
        """The status of a TokenReview. Blocking. Raises OSError."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self.audience]},
        }
        headers = {
            "Authorization": f"Bearer {self.token.read_text().strip()}",
            "Content-Type": "application/json",
        }
        url = f"{self.url.rstrip('/')}/apis/authentication.k8s.io/v1/tokenreviews"
        answer = _ask(url, self.authorities, "POST", json.dumps(body).encode(), headers)
        try:
            status = json.loads(answer).get("status")
        except (ValueError, AttributeError):
            raise OSError("its answer is not a TokenReview") from None
        if not isinstance(status, dict):
            raise OSError("its answer is a TokenReview without a status")
        return status


async def in_thread(executor: Executor, function: Callable[..., T], *args: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, function, *args)


def _ask(
    url: str, authorities: str, method: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> bytes:
    """Raises OSError, also for an answer that is not 2xx."""
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=authorities or None)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, context=context, timeout=ANSWER_SECONDS_MAX
    )
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, path or "/", body, headers or {})
        answer = connection.getresponse()
        data = _bounded(answer.read(ANSWER_BYTES_MAX + 1))
        if not 200 <= answer.status < 300:
            raise OSError(f"{parts.hostname} answered {answer.status} {answer.reason}")
        return data
    except http.client.HTTPException as error:
        raise OSError(f"{parts.hostname} does not answer as an HTTP server: {error!r}") from error
    finally:
        connection.close()


def _bounded(data: bytes) -> bytes:
    if len(data) > ANSWER_BYTES_MAX:
        raise OSError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
    return data
