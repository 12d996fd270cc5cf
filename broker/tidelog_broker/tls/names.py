"""The name of a broker or user in a certificate: a URI among its subject alternative names.

``tidelog://<cluster>/broker/<id>`` or ``tidelog://<cluster>/user/<name>`` (RFC 5280, 4.2.1.6). The
administrator chooses the name of the cluster; all brokers of a cluster have the same. A host name would not
do: brokers move to other machines, and a machine may run brokers of several clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog_broker.errors import BrokerError

SCHEME: Final = "tidelog://"

CLUSTER_CHARACTERS_MAX: Final = 253

_URI: Final = re.compile(
    rf"{SCHEME}(?P<cluster>[A-Za-z0-9][A-Za-z0-9._-]{{0,{CLUSTER_CHARACTERS_MAX - 1}}})"
    r"/broker/(?P<broker>0|[1-9][0-9]{0,9})"
)


_USER_URI: Final = re.compile(
    rf"{SCHEME}(?P<cluster>[A-Za-z0-9][A-Za-z0-9._-]{{0,{CLUSTER_CHARACTERS_MAX - 1}}})"
    r"/user/(?P<user>[A-Za-z0-9][A-Za-z0-9._-]{0,199})"
)


class NameInvalid(BrokerError):
    """A certificate does not have one name of the kind that is wanted."""


class BrokerName(NamedTuple):
    """One broker of one cluster."""

    cluster: str
    broker_id: int

    def __str__(self) -> str:
        return f"{SCHEME}{self.cluster}/broker/{self.broker_id}"


class ClientName(NamedTuple):
    """One user of one cluster."""

    cluster: str
    user: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.cluster}/user/{self.user}"


def client_in(uris: Iterable[str]) -> ClientName:
    """The user that these URIs of a certificate name. Raises `NameInvalid`."""
    found = _USER_URI.fullmatch(_only_name(uris))
    if found is None:
        raise NameInvalid(
            f"the certificate names no user; give it a URI such as {ClientName('main', 'orders')}"
        )
    return ClientName(found["cluster"], found["user"])


def broker_in(uris: Iterable[str]) -> BrokerName:
    """The broker that these URIs of a certificate name. URIs of other schemes are ignored.

    Raises `NameInvalid`.
    """
    ours = _only_name(uris)
    found = _URI.fullmatch(ours)
    if found is None:
        raise NameInvalid(f"the URI {ours!r} in the certificate is not like {BrokerName('main', 0)}")
    return BrokerName(found["cluster"], int(found["broker"]))


def _only_name(uris: Iterable[str]) -> str:
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    if not ours:
        raise NameInvalid(f"the certificate has no URI such as {BrokerName('main', 0)}")
    if len(ours) > 1:
        raise NameInvalid(f"the certificate has more than one URI that begins with {SCHEME}")
    return ours[0]
