"""Requests to the Kubernetes API: all writes of the operator, and the lists with which it starts.

Later changes arrive through watches (`handlers`). Every write either depends on the version of the object
that was observed, or sets all fields that the operator owns (server-side apply). If another client was
faster, the operator observes the object again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from tidelog_operator.model import CLUSTER, FINALIZER, INGESTION, STREAM, Manifest, ObjectKey, StreamObject

MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
MANAGER: Final = "tidelog-operator"
"""The field manager: by this name the API server knows which fields the operator owns."""

EVENT: Final = "Event"

PROPAGATION: Final[Mapping[str, str]] = {"CronJob": "Foreground", "Job": "Foreground"}
"""By kind: a Job that is deleted stays until its pods have ended, so that no other driver begins earlier."""

REQUEST_SECONDS_MAX: Final = 10.0
HTTP_CONFLICT: Final = 409
HTTP_NOT_FOUND: Final = 404

KUBE_FAILURES: Final[tuple[type[Exception], ...]] = (ApiException, aiohttp.ClientError, TimeoutError, OSError)
"""Errors of the API server and of the connection to it; the request is tried again later."""


def reason_of(error: BaseException) -> str:
    """Returns the message of the API server, else its status and reason, else the text of the error."""
    if not isinstance(error, ApiException):
        return str(error) or type(error).__name__
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the merge patch that makes `after` of `before`: it removes fields, also inside of objects."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            patch[name] = merge_patch(old, value)
        else:
            patch[name] = value
    return patch


class Kind(NamedTuple):
    """A kind of namespaced objects."""

    version: str
    """The apiVersion as in manifests: with the group, if there is one."""
    plural: str

    def path(self, key: ObjectKey) -> str:
        """The path of an object; for a key without a name, the path of all objects in the namespace."""
        root = "apis" if "/" in self.version else "api"
        path = f"/{root}/{self.version}/namespaces/{key.namespace}/{self.plural}"
        return f"{path}/{key.name}" if key.name else path


KINDS: Final[Mapping[str, Kind]] = {
    STREAM: Kind("tidelog.io/v1alpha1", "streams"),
    CLUSTER: Kind("tidelog.io/v1alpha1", "clusters"),
    INGESTION: Kind("tidelog.io/v1alpha1", "ingestions"),
    "CronJob": Kind("batch/v1", "cronjobs"),
    "Job": Kind("batch/v1", "jobs"),
    "StatefulSet": Kind("apps/v1", "statefulsets"),
    "PodDisruptionBudget": Kind("policy/v1", "poddisruptionbudgets"),
    "Service": Kind("v1", "services"),
    "ConfigMap": Kind("v1", "configmaps"),
    "PersistentVolumeClaim": Kind("v1", "persistentvolumeclaims"),
    "Pod": Kind("v1", "pods"),
    EVENT: Kind("events.k8s.io/v1", "events"),
}


DEFINITIONS_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Listed(NamedTuple):
    items: Sequence[Manifest]
    version: int
    """The resourceVersion of the list."""


class Outdated(Exception):
    """The object has changed or is gone since it was observed. Its watch event brings the new state."""


class Kube:
    """A connection to the API server; an async context manager. Requests raise the errors of
    `KUBE_FAILURES`."""

    def __init__(self, kubeconfig: str = "", *traces: aiohttp.TraceConfig) -> None:
        """`kubeconfig`: path of a file; empty: the service account of the pod. `traces` observe every
        request."""
        self._kubeconfig = kubeconfig
        self._traces = traces
        self._client: client.ApiClient | None = None

    @property
    def client(self) -> client.ApiClient:
        assert self._client is not None, "the context manager is entered"
        return self._client

    async def __aenter__(self) -> Kube:
        settings = client.Configuration(trace_configs=list(self._traces))
        if self._kubeconfig:
            await config.load_kube_config(self._kubeconfig, client_configuration=settings)
        else:
            config.load_incluster_config(client_configuration=settings)
        self._client = client.ApiClient(settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def missing_kinds(self) -> Sequence[str]:
        """Returns the kinds of `KINDS` that the API server does not serve. Just after its start it lists few;
        and the list of groups and the list of a group's resources become complete at different times."""
        listed = await self._request("GET", "/apis")
        versions = {each["groupVersion"] for group in listed["groups"] for each in group["versions"]}
        wanted = {one.version for one in KINDS.values()}
        plurals: dict[str, set[str]] = {}
        for version in sorted(one for one in wanted if one in versions or "/" not in one):
            try:
                found = await self._request("GET", f"/{'apis' if '/' in version else 'api'}/{version}")
            except ApiException as error:
                if error.status != HTTP_NOT_FOUND:
                    raise
                continue
            plurals[version] = {one["name"] for one in found["resources"]}
        return [kind for kind, one in KINDS.items() if one.plural not in plurals.get(one.version, ())]

    async def list(self, kind: str, namespace: str, label: str = "") -> Listed:
        """Returns all objects of a kind in a namespace, and only those with `label` if it is not empty."""
        return await self._list(kind, namespace, {"labelSelector": label} if label else {})

    async def find(self, kind: str, key: ObjectKey) -> Manifest | None:
        """Returns the object, whatever its labels are; None: it does not exist."""
        listed = await self._list(kind, key.namespace, {"fieldSelector": f"metadata.name={key.name}"})
        return next(iter(listed.items), None)

    async def _list(self, kind: str, namespace: str, query: Mapping[str, str]) -> Listed:
        found = await self._request("GET", KINDS[kind].path(ObjectKey(namespace, "")), query=query)
        # The items of a list carry neither kind nor apiVersion.
        items = [{**one, "kind": kind, "apiVersion": KINDS[kind].version} for one in found["items"]]
        return Listed(items, int(found["metadata"]["resourceVersion"]))

    async def create(self, manifest: Manifest) -> Manifest:
        """Creates the object and returns it. Raises `Outdated` if it exists."""
        key = ObjectKey(manifest["metadata"]["namespace"], "")
        query = {"fieldManager": MANAGER}
        return await self._changed("POST", KINDS[manifest["kind"]].path(key), manifest, query=query)

    async def apply(self, manifest: Manifest, version: str = "", manager: str = MANAGER) -> Manifest:
        """Applies the manifest and returns the object. Fields that `manager` applied before and does not
        apply now are removed.

        `version`: raises `Outdated` if the object has another resourceVersion.
        """
        meta = manifest["metadata"]
        if version:
            manifest = {**manifest, "metadata": {**meta, "resourceVersion": version}}
        path = KINDS[manifest["kind"]].path(ObjectKey(meta["namespace"], meta["name"]))
        query = {"fieldManager": manager, "force": "true"}
        return await self._changed("PATCH", path, manifest, content=APPLY_PATCH, query=query)

    async def apply_definition(self, manifest: Manifest) -> Manifest:
        """Creates or updates a CustomResourceDefinition and returns it."""
        path = f"{DEFINITIONS_PATH}/{manifest['metadata']['name']}"
        query = {"fieldManager": MANAGER, "force": "true"}
        return await self._request("PATCH", path, manifest, content=APPLY_PATCH, query=query)

    async def find_definition(self, name: str) -> Manifest | None:
        """Returns a CustomResourceDefinition; None: it does not exist."""
        try:
            return await self._request("GET", f"{DEFINITIONS_PATH}/{name}")
        except ApiException as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            return None

    async def patch(self, kind: str, key: ObjectKey, change: Manifest) -> None:
        """Merges `change` into the object. Raises `Outdated` if it is gone."""
        await self._changed("PATCH", KINDS[kind].path(key), change, content=MERGE_PATCH)

    async def delete(self, kind: str, key: ObjectKey, uid: str) -> bool:
        """Deletes the object if it has this uid. Returns whether it is gone; False: finalizers delay its
        removal, or the objects that it owns, which are deleted first."""
        conditions = {"preconditions": {"uid": uid}, "propagationPolicy": PROPAGATION.get(kind, "Background")}
        try:
            found = await self._request("DELETE", KINDS[kind].path(key), conditions)
        except ApiException as error:
            if error.status not in (HTTP_NOT_FOUND, HTTP_CONFLICT):
                raise
            return True
        # An object that remains for a while is returned itself, instead of a Status.
        return bool(found["kind"] == "Status")

    async def write_status(
        self, kind: str, key: ObjectKey, before: Mapping[str, Any], status: Mapping[str, Any]
    ) -> Manifest | None:
        """Replaces the status `before` with `status`. Returns the object; None: it is gone."""
        path = f"{KINDS[kind].path(key)}/status"
        body = {"status": merge_patch(before, status)}
        try:
            return await self._request("PATCH", path, body, content=MERGE_PATCH)
        except ApiException as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            return None

    async def add_finalizer(self, kind: str, one: StreamObject) -> StreamObject:
        """Adds the operator's finalizer and returns the Stream with it. Raises `Outdated`."""
        return await self._set_finalizers(kind, one, [*one.finalizers, FINALIZER])

    async def remove_finalizer(self, kind: str, one: StreamObject) -> StreamObject:
        """Removes the operator's finalizer and returns the Stream without it. Raises `Outdated`."""
        return await self._set_finalizers(kind, one, [each for each in one.finalizers if each != FINALIZER])

    async def _set_finalizers(self, kind: str, one: StreamObject, finalizers: Sequence[str]) -> StreamObject:
        metadata = {"resourceVersion": one.version, "finalizers": list(finalizers)}
        path = KINDS[kind].path(one.key)
        changed = await self._changed("PATCH", path, {"metadata": metadata}, content=MERGE_PATCH)
        version = changed["metadata"]["resourceVersion"]
        return replace(one, finalizers=tuple(finalizers), version=version)

    async def _changed(self, method: str, path: str, body: Manifest, **how: Any) -> Manifest:
        try:
            return await self._request(method, path, body, **how)
        except ApiException as error:
            if error.status in (HTTP_CONFLICT, HTTP_NOT_FOUND):
                raise Outdated(path) from error
            raise

    async def _request(
        self,
        method: str,
        path: str,
        body: Manifest | None = None,
        *,
        content: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        headers = {"Accept": "application/json", "Content-Type": content}
        url = f"{path}?{urlencode(query)}" if query else path
        prepared = await self.client.param_serialize(
            method, url, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        answer = await self.client.call_api(*prepared, _request_timeout=REQUEST_SECONDS_MAX)
        data = await answer.read()
        if not 200 <= answer.status <= 299:
            raise ApiException.from_response(
                http_resp=answer, body=data.decode("utf-8", "replace"), data=None
            )
        found: Manifest = json.loads(data)
        return found
