"""What the caller of a running call may do: asked by services, for each request or batch (A4 to A9).

`ACCESS` holds the access of the call that is being served. Neighbours: `calls` sets it, `permissions` says
what each rpc needs, `core.metadata.permissions` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from tidelog.errors import PermissionDenied, StreamNotFound, TidelogError, Unauthenticated
from tidelog.model import id_text
from tidelog.model.access import ANONYMOUS, AclRule, Operation, Resource
from tidelog_broker.api.usage import UNLIMITED, Usage, Usages
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.core.metadata.permissions import Decision, Permissions, Principals
from tidelog_broker.identity.identity import WITHOUT_CREDENTIALS, Identity

VERBS: Final = {
    Operation.PRODUCE: "produce to",
    Operation.CONSUME: "consume from",
    Operation.ADMIN: "administer",
}
"""Operations in sentences, where the name is not the verb."""

DECISIONS_MAX: Final = 100_000
"""Decisions that are remembered until the rules change; then, or if there are more, all are forgotten."""


class Access:
    """Everything is allowed: authentication is off, or the caller is a superuser or a broker (A7)."""

    superuser = True

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    @property
    def usage(self) -> Usage:
        """What the caller uses of this broker."""
        return UNLIMITED

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity.principal}>"

    def check_known(self) -> None:
        """Raises `Unauthenticated` for a call without credentials, unless a rule names such calls."""

    def check_cluster(self, operation: Operation) -> None:
        """Raises `PermissionDenied` or `Unauthenticated`, as all checks do."""

    def check_named(self, name: str, operation: Operation) -> None:
        """For the stream of this name, whether it exists or not."""

    def check_stream(self, stream_id: bytes, operation: Operation) -> None:
        """For the stream with this id. Raises `StreamNotFound` if it does not exist, or is hidden."""

    def check_somewhere(self, operation: Operation) -> None:
        """For any stream."""

    def sees(self, name: str) -> bool:
        """Whether the stream of this name is not hidden."""
        return True

    @property
    def version(self) -> object:
        """Another object after each change of what is allowed."""
        return None

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls `changed` after each change of what is allowed; the answer ends that."""
        return lambda: None


class RestrictedAccess(Access):
    """The rules decide. Calls of one caller share it."""

    superuser = False

    def __init__(self, identity: Identity, authorization: Authorization) -> None:
        super().__init__(identity)
        self._authorization = authorization
        self._principals = identity.principals
        self._allowed: dict[tuple[bytes, Operation], None] = {}
        """Streams by id. A stream keeps its name, so only the rules can change it."""
        self._rules: object = None
        """Those that `_allowed` rests on."""

    @property
    def usage(self) -> Usage:
        return self._authorization.usages.of(self.identity.principal)

    def check_known(self) -> None:
        if self.identity.principal == ANONYMOUS and not self._authorization.permissions().names(ANONYMOUS):
            raise Unauthenticated("this call has no credentials; give a token or a client certificate")

    def check_cluster(self, operation: Operation) -> None:
        if not self._decide(operation, Resource.CLUSTER).allowed:
            raise self._refusal(operation, "the cluster")

    def check_named(self, name: str, operation: Operation) -> None:
        if not self._decide(operation, Resource.STREAM, name).allowed and not (
            operation is Operation.DESCRIBE and self.sees(name)
        ):
            raise self._refusal(operation, f"stream {name[:200]!r}")

    def check_stream(self, stream_id: bytes, operation: Operation) -> None:
        image = self._authorization.image()
        if self._rules is not image.acl or len(self._allowed) > DECISIONS_MAX:
            self._allowed.clear()
            self._rules = image.acl
        if (stream_id, operation) in self._allowed:
            return
        stream = image.streams.find(stream_id)
        if stream is None or not self.sees(stream.name):
            raise no_stream_with(stream_id)
        self.check_named(stream.name, operation)
        self._allowed[stream_id, operation] = None

    def check_somewhere(self, operation: Operation) -> None:
        if not self._authorization.permissions().may_somewhere(self._principals, operation, Resource.STREAM):
            raise self._refusal(operation, "any stream")

    def sees(self, name: str) -> bool:
        # The state of the cluster and its metrics name all streams.
        return (
            self._decide(Operation.DESCRIBE, Resource.STREAM, name).allowed
            or self._decide(Operation.DESCRIBE, Resource.CLUSTER).allowed
        )

    @property
    def version(self) -> object:
        return self._authorization.image().acl

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        return self._authorization.watch(changed)

    def _decide(self, operation: Operation, resource: Resource, name: str = "") -> Decision:
        return self._authorization.decide(self._principals, operation, resource, name)

    def _refusal(self, operation: Operation, resource: str) -> TidelogError:
        principal, verb = self.identity.principal, VERBS.get(operation, operation)
        if principal == ANONYMOUS:
            return Unauthenticated(
                f"this call has no credentials, and {ANONYMOUS} may not {verb} {resource}; give a token "
                "or a client certificate"
            )
        return PermissionDenied(f"{principal} may not {verb} {resource}", principal=principal)


class Authorization:
    """The rules of the present image, and the decisions that follow from them."""

    def __init__(self, image: Callable[[], ClusterImage], superusers: frozenset[str]) -> None:
        self.image = image
        self.usages = Usages(image)
        self._superusers = superusers
        self._rules: tuple[AclRule, ...] | None = None
        self._permissions = Permissions(())
        self._decisions: dict[tuple[Principals, Operation, Resource, str], Decision] = {}
        self._watching: dict[object, Callable[[], None]] = {}
        """Called after each change of the rules."""

    def __repr__(self) -> str:
        return f"<Authorization rules={len(self.image().acl)} decisions={len(self._decisions)}>"

    def access_of(self, identity: Identity) -> Access:
        """What the caller may do from now on, also after changes of the rules."""
        if self.is_superuser(identity.principals):
            return Access(identity)
        return RestrictedAccess(identity, self)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls `changed` after each change of the rules; the answer ends that."""
        key = object()
        self._watching[key] = changed
        return lambda: self._watching.pop(key, None) and None

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """There is a new image."""
        if old.quotas is not new.quotas:
            self.usages.follow()
        if old.acl is not new.acl:
            for changed in list(self._watching.values()):
                changed()

    def is_superuser(self, principals: Principals) -> bool:
        return principals[0].startswith("broker:") or not self._superusers.isdisjoint(principals)

    def permissions(self) -> Permissions:
        rules = self.image().acl
        if rules is not self._rules:
            self._rules, self._permissions = rules, Permissions(rules)
            self._decisions.clear()
        return self._permissions

    def decide(
        self, principals: Principals, operation: Operation, resource: Resource, name: str = ""
    ) -> Decision:
        permissions, key = self.permissions(), (principals, operation, resource, name)
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            found = self._decisions[key] = permissions.decide(principals, operation, resource, name)
        return found


def no_stream_with(stream_id: bytes) -> StreamNotFound:
    """The answer to an id that no stream has, and to the id of a hidden stream (A8)."""
    text = id_text(stream_id) if len(stream_id) == 16 else f"of {len(stream_id)} bytes"
    return StreamNotFound(
        f"there is no stream with id {text}; it was deleted, or belongs to another cluster: resolve its name "
        "again"
    )


def stream_with(image: ClusterImage, stream_id: bytes) -> StreamImage:
    """Raises `StreamNotFound`."""
    stream = image.streams.find(stream_id)
    if stream is None:
        raise no_stream_with(stream_id)
    return stream


UNRESTRICTED: Final = Access(WITHOUT_CREDENTIALS)
"""For calls while authentication is off."""

ACCESS: ContextVar[Access] = ContextVar("access", default=UNRESTRICTED)
"""What the caller of the call that is being served may do. Set by `calls`."""
