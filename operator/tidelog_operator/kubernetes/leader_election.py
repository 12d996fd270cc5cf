"""Leader election: the operator that holds and renews a Lease is active.

Two active operators at once do little harm (`actions`). One is enough; the other takes over when it ends. As
in Kubernetes' own components, no operator trusts the clock of another machine: a lease has expired if the
observing operator, by its own clock, saw no renewal for the length of the lease. (The client library's own
election cannot create a Lease in the pinned version.)
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
"""Another operator may acquire the lease if it sees no renewal for this time."""

LEADS_SECONDS: Final = 7.0
"""The holder stops acting if it cannot renew the lease for this time; less than the length of the lease."""

RENEW_SECONDS: Final = 2.0


class LeaderElection:
    """Acquires, renews and releases one Lease, and says whether this operator holds it."""

    def __init__(self, kube: Kube, namespace: str, name: str, identity: str) -> None:
        self._leases = client.CoordinationV1Api(kube.client)
        self._namespace, self._name, self._identity = namespace, name, identity
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        """This operator leads until this time of the event loop's clock."""
        self._seen = ("", 0.0)
        """The newest version of the lease, and when this operator first saw it."""

    def __repr__(self) -> str:
        return f"<Leading {self._namespace}/{self._name} leads={self.leads}>"

    @property
    def leads(self) -> bool:
        return self._loop.time() < self._until

    @property
    def has_observed_lease(self) -> bool:
        """Whether the API server has answered: this operator knows whether it leads."""
        return self._seen[0] != "" or self.leads

    async def run(self, started_leading: Callable[[], None]) -> None:
        """Takes part in the election until it is cancelled, then releases the lease. Calls `started_leading`
        whenever this operator becomes the leader."""
        try:
            while True:
                began = self._loop.time()
                try:
                    async with asyncio.timeout(REQUEST_SECONDS_MAX):
                        if await self._acquire_or_renew(began):
                            started_leading()
                except KUBE_FAILURES as error:
                    log.debug("cannot acquire or renew the lease", reason=str(error))
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            if self.leads:
                self._until = 0.0
                await self._release()

    async def _acquire_or_renew(self, began: float) -> bool:
        """Returns whether this operator has just become the leader. `began`: when this attempt started."""
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
                # Another operator wrote the lease first; the next attempt reads it.
                return False
            if error.status != HTTP_NOT_FOUND:
                raise
            await self._create()
            self._until = began + LEADS_SECONDS
        if self.leads and not led:
            log.info("became leader", lease=f"{self._namespace}/{self._name}")
            return True
        if led and not self.leads:
            log.warning("another operator is the leader now", lease=f"{self._namespace}/{self._name}")
        return False

    def _may_acquire(self, lease: client.V1Lease) -> bool:
        assert lease.metadata is not None, "the API server sets it"
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
            log.debug("cannot release the lease; it will expire", reason=str(error))


def _spec_of(lease: client.V1Lease) -> client.V1LeaseSpec:
    assert lease.spec is not None, "every operator writes the spec"
    return lease.spec
