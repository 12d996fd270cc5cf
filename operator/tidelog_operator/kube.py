"""What the operator writes to the Kubernetes API. What it reads comes by watches (`handlers`).

Every write rests on the version of the object that was seen, or says the whole of what the operator
owns (server-side apply): who was faster wins, and the operator looks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from tidelog_operator.model import (
    CLUSTER,
    FINALIZER,
    GROUP,
    STREAM,
    VERSION,
    ClusterObject,
    Manifest,
    ObjectKey,
    StreamObject,
)

MERGE_PATCH: Final = "application/merge-patch+json"
REQUEST_SECONDS_MAX: Final = 10.0
HTTP_CONFLICT: Final = 409
HTTP_NOT_FOUND: Final = 404

PLURALS: Final = {STREAM: "streams", CLUSTER: "clusters"}


KUBE_FAILURES: Final[tuple[type[Exception], ...]] = (ApiException, aiohttp.ClientError, TimeoutError, OSError)
"""What the API server, or the way to it, answers with; tried again later."""


class Outdated(Exception):
    """The object is not as it was seen: it is looked at again when its change comes."""


class Kube:
    """See the module; an async context manager. Raises `ApiException`, `ClientError`, `TimeoutError`."""

    def __init__(self, kubeconfig: str = "") -> None:
        """`kubeconfig`: a file; empty: the service account of the pod."""
        self._kubeconfig = kubeconfig
        self._client: client.ApiClient | None = None

    @property
    def client(self) -> client.ApiClient:
        assert self._client is not None, "entered"
        return self._client

    async def __aenter__(self) -> Kube:
        settings = client.Configuration()
        if self._kubeconfig:
            await config.load_kube_config(self._kubeconfig, client_configuration=settings)
        else:
            config.load_incluster_config(client_configuration=settings)
        self._client = client.ApiClient(settings)
        self._objects = client.CustomObjectsApi(self._client)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def list(self, kind: str, namespace: str) -> Sequence[Manifest]:
        """All of a namespace, as the API server has them now."""
        found: Any = await self._objects.list_namespaced_custom_object(
            GROUP, VERSION, namespace, PLURALS[kind], _request_timeout=REQUEST_SECONDS_MAX
        )
        items: Sequence[Manifest] = found["items"]
        return items

    async def write_status(
        self, kind: str, key: ObjectKey, before: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        """Makes the status that was `before` this one; nothing if the object is gone."""
        gone = {name: None for name in before if name not in status}
        try:
            await self._objects.patch_namespaced_custom_object_status(
                GROUP, VERSION, key.namespace, PLURALS[kind], key.name, {"status": {**status, **gone}},
                _content_type=MERGE_PATCH, _request_timeout=REQUEST_SECONDS_MAX,
            )  # fmt: skip
        except ApiException as error:
            if error.status != HTTP_NOT_FOUND:
                raise

    async def add_finalizer(self, kind: str, one: StreamObject | ClusterObject) -> str:
        """The object's version after that. Raises `Outdated`."""
        return await self._set_finalizers(kind, one, [*one.finalizers, FINALIZER])

    async def remove_finalizer(self, kind: str, one: StreamObject | ClusterObject) -> None:
        """Raises `Outdated`."""
        await self._set_finalizers(kind, one, [each for each in one.finalizers if each != FINALIZER])

    async def _set_finalizers(
        self, kind: str, one: StreamObject | ClusterObject, finalizers: Sequence[str]
    ) -> str:
        metadata = {"resourceVersion": one.version, "finalizers": list(finalizers)}
        try:
            changed: Any = await self._objects.patch_namespaced_custom_object(
                GROUP, VERSION, one.key.namespace, PLURALS[kind], one.key.name, {"metadata": metadata},
                _content_type=MERGE_PATCH, _request_timeout=REQUEST_SECONDS_MAX,
            )  # fmt: skip
        except ApiException as error:
            if error.status in (HTTP_CONFLICT, HTTP_NOT_FOUND):
                raise Outdated(str(one.key)) from error
            raise
        version: str = changed["metadata"]["resourceVersion"]
        return version
