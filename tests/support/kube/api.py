"""The Kubernetes API as JSON, for an event loop: the requests of `nodes`, and a cache of all objects of a
kind."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

Json = dict[str, Any]
Seen = Callable[[Json], Coroutine[Any, Any, None]]
Key = tuple[str, str]
"""Namespace and name; the namespace is empty for objects without one."""

AWAY: Final[tuple[type[Exception], ...]] = (aiohttp.ClientError, OSError)
"""The API server does not answer, or cannot execute the request now; the caller tries again."""

REQUEST_SECONDS_MAX: Final = 10.0
AGAIN_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 300
OBJECT_BYTES_MAX: Final = 1 << 20

HTTP_BAD: Final = 400
HTTP_NOT_FOUND: Final = 404
HTTP_CONFLICT: Final = 409
HTTP_BUSY: Final = 429
HTTP_BROKEN: Final = 500

MERGE: Final = "merge-patch+json"
STRATEGIC_MERGE: Final = "strategic-merge-patch+json"


def key_of(one: Json) -> Key:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


class KubeApi:
    """A client with the credentials of a kubeconfig; an async context manager. Raises the errors in
    `AWAY`."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_bytes())
        cluster = config["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._session = aiohttp.ClientSession(
            cluster["server"],
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority), limit=0),
            timeout=aiohttp.ClientTimeout(REQUEST_SECONDS_MAX),
            read_bufsize=OBJECT_BYTES_MAX,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, path: str) -> Json:
        async with self._session.get(path) as answer:
            await _check(answer)
            found: Json = await answer.json()
            return found

    async def send(self, method: str, path: str, body: Json, kind: str = "json") -> bool:
        """Returns whether the request succeeded. If the object already exists, has changed or is gone, the
        caller looks again."""
        headers = {"Content-Type": f"application/{kind}"}
        async with self._session.request(method, path, data=json.dumps(body), headers=headers) as answer:
            if answer.status in (HTTP_NOT_FOUND, HTTP_CONFLICT):
                return False
            await _check(answer)
            return True

    async def watch(self, path: str, version: str) -> AsyncGenerator[tuple[str, Json]]:
        """Yields each change since that version with its type, until the API server ends the watch."""
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        for_long = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS_MAX)
        async with self._session.get(path, params=query, timeout=for_long) as answer:
            await _check(answer)
            try:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    yield event["type"], event["object"]
            finally:
                # A TLS shutdown would outlive the loop.
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()


async def _check(answer: aiohttp.ClientResponse) -> None:
    """A request that is wrong stays wrong: it is a mistake in the tests, and ends the test."""
    if answer.status >= HTTP_BROKEN or answer.status == HTTP_BUSY:
        answer.raise_for_status()
    assert answer.status < HTTP_BAD, f"{answer.method} {answer.url.path}: {await answer.text()}"


class Mirror:
    """All objects of a kind, as they were last seen, on one event loop."""

    def __init__(
        self,
        api: KubeApi,
        path: str,
        changed: Seen | None = None,
        gone: Seen | None = None,
    ) -> None:
        """`changed` is called with each object again after the watch was restarted."""
        self._api = api
        self._path = path
        self._changed = changed
        self._gone = gone
        self.objects: dict[Key, Json] = {}
        self.listed = asyncio.Event()
        """Set when the first list is complete."""

    async def run(self) -> None:
        """Watches without end."""
        while True:
            with suppress(*AWAY):
                async with aclosing(self._api.watch(self._path, await self._list())) as changes:
                    async for kind, one in changes:
                        await self._event(kind, one)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _list(self) -> str:
        listed = await self._api.get(self._path)
        there = {key_of(one): one for one in listed["items"]}
        for key in [key for key in self.objects if key not in there]:
            await self._event("DELETED", self.objects[key])
        for one in there.values():
            await self._event("MODIFIED", one)
        self.listed.set()
        version: str = listed["metadata"]["resourceVersion"]
        return version

    async def _event(self, kind: str, one: Json) -> None:
        if kind == "DELETED":
            self.objects.pop(key_of(one), None)
            if self._gone is not None:
                await self._gone(one)
        else:
            self.objects[key_of(one)] = one
            if self._changed is not None:
                await self._changed(one)
