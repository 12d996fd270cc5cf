"""One operator at a time: a Lease, held by whoever renews it.

Two that lead at once do little harm (`actions`); one is enough, and the other is there when it ends. As in
Kubernetes' own components nobody trusts another clock: a lease is free when nobody renewed it for its length,
by the time of whoever watches it. (The client library's own election cannot make a Lease in the version that
is pinned.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tidelog_operator.kubernetes.api import (
    HTTP_CONFLICT,
    HTTP_NOT_FOUND,
    KUBE_FAILURES,
    REQUEST_SECONDS_MAX,
    Kube,
)

log = structlog.get_logger(__name__)

LEASE_SECONDS: Final = 10
"""Without a renewal for so long another operator leads."""

LEADS_SECONDS: Final = 7.0
"""Who could not renew it for so long does not lead any more; less than the lease."""

RENEW_SECONDS: Final = 2.0


class LeaderElection:
    """See the module."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, identity: str, began: Callable[[], None]
    ) -> None:
        """`began` is told whenever this operator begins to lead."""
        self._leases = client.CoordinationV1Api(kube.client)
        self._namespace, self._name, self._identity = namespace, name, identity
        self._began = began
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        """It leads until then; event loop's clock."""
        self._seen = ("", 0.0)
        """The newest version of the lease, and when it was first seen."""

    def __repr__(self) -> str:
        return f"<Leading {self._namespace}/{self._name} leads={self.leads}>"

    @property
    def leads(self) -> bool:
        return self._loop.time() < self._until

    @property
    def knows(self) -> bool:
        """The API server has answered: this operator has seen who leads."""
        return self._seen[0] != "" or self.leads

    async def run(self) -> None:
        """Takes part until it is cancelled, and gives the lease back then."""
        try:
            while True:
                began = self._loop.time()
                try:
                    async with asyncio.timeout(REQUEST_SECONDS_MAX):
                        await self._acquire_or_renew(began)
                except KUBE_FAILURES as error:
                    log.debug("the lease is not known", reason=str(error))
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            if self.leads:
                self._until = 0.0
                await self._release()

    async def _acquire_or_renew(self, began: float) -> None:
        led = self.leads
        try:
            lease = await self._leases.read_namespaced_lease(self._name, self._namespace)
            if not self._may_acquire(lease):
                self._until = 0.0
            else:
                self._claim(lease)
                await self._leases.replace_namespaced_lease(self._name, self._namespace, lease)
                self._until = began + LEADS_SECONDS
        except ApiException as error:
            if error.status == HTTP_CONFLICT:
                # Somebody was faster: next time it is seen who.
                return
            if error.status != HTTP_NOT_FOUND:
                raise
            await self._create()
            self._until = began + LEADS_SECONDS
        if self.leads and not led:
            log.info("this operator leads", lease=f"{self._namespace}/{self._name}")
            self._began()
        elif led and not self.leads:
            log.warning("another operator leads now")

    def _may_acquire(self, lease: client.V1Lease) -> bool:
        assert lease.metadata is not None, "it is there"
        version, now = lease.metadata.resource_version or "", self._loop.time()
        if version != self._seen[0]:
            self._seen = (version, now)
        holder = _spec_of(lease).holder_identity
        return holder in (None, "", self._identity) or now - self._seen[1] > LEASE_SECONDS

    def _claim(self, lease: client.V1Lease) -> None:
        now, spec = datetime.now(UTC), _spec_of(lease)
        if spec.holder_identity != self._identity:
            spec.holder_identity, spec.acquire_time = self._identity, now
            spec.lease_transitions = (spec.lease_transitions or 0) + 1
        spec.lease_duration_seconds, spec.renew_time = LEASE_SECONDS, now

    async def _create(self) -> None:
        lease = client.V1Lease(
            metadata=client.V1ObjectMeta(name=self._name, namespace=self._namespace),
            spec=client.V1LeaseSpec(lease_transitions=0),
        )
        self._claim(lease)
        await self._leases.create_namespaced_lease(self._namespace, lease)

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                lease = await self._leases.read_namespaced_lease(self._name, self._namespace)
                if _spec_of(lease).holder_identity == self._identity:
                    _spec_of(lease).holder_identity = ""
                    await self._leases.replace_namespaced_lease(self._name, self._namespace, lease)
        except KUBE_FAILURES as error:
            log.debug("the lease is not given back, and runs out", reason=str(error))


def _spec_of(lease: client.V1Lease) -> client.V1LeaseSpec:
    assert lease.spec is not None, "whoever makes it fills it"
    return lease.spec
