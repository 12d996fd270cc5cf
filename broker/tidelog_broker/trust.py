"""The authentication and the superusers that the settings ask for, and the addresses that need them.

Neighbours: `identity` has the sources of identities and knows no settings; `encryption` is the same for TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import structlog

from tidelog_broker.api.access import Authorization
from tidelog_broker.api.access_control import AccessControl
from tidelog_broker.clock import Clock
from tidelog_broker.config.settings import Settings
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import BrokerError
from tidelog_broker.identity.authentication import Authentication
from tidelog_broker.identity.certificates import ClientCertificates
from tidelog_broker.identity.cluster_tokens import ClusterTokens
from tidelog_broker.identity.identity import Clocks, TokenSource
from tidelog_broker.identity.local_token import LocalToken
from tidelog_broker.identity.openid import OpenId, Provider
from tidelog_broker.identity.service_accounts import ServiceAccounts
from tidelog_broker.identity.sources import ApiServer, KeyAddress, KeyFile, in_thread
from tidelog_broker.listener_addresses import ListenerSpec, is_loopback, parse_http, parse_listen
from tidelog_broker.tls.following import FollowedFiles

log = structlog.get_logger(__name__)


def check_exposure(settings: Settings) -> None:
    """Raises `BrokerError` for addresses at which every program can read and write all streams, unless the
    settings accept that."""
    exposed = [f"{one}: {why}" for one, why in _exposed(settings)]
    if exposed and settings.insecure:
        log.warning(
            "every program that reaches these addresses can read and write all streams", addresses=exposed
        )
    elif exposed:
        raise BrokerError(
            "every program that reaches these addresses could read and write all streams. "
            f"{'; '.join(exposed)}. Use TLS and authentication, or addresses on loopback; or set insecure if "
            "you trust the network"
        )


def _exposed(settings: Settings) -> Iterator[tuple[str, str]]:
    """The addresses that are not on loopback, and what each lacks."""
    known = settings.authentication == "required"
    addresses = [(f"listener {spec}", one.host, one.tls) for spec, one in _listeners(settings)]
    if settings.http:
        host, _, tls = parse_http(settings.http)
        addresses.append((f"http {settings.http}", host, tls))
    for name, host, tls in addresses:
        if is_loopback(host):
            continue
        if tls == "off":
            yield name, "it has no TLS (?tls=server or ?tls=mutual)"
        elif tls == "server" and not known:
            yield name, "its clients need no credentials (authentication: required, or ?tls=mutual)"
    peers = settings.peer_listener
    if peers and settings.peer_tls != "mutual" and not is_loopback(parse_listen(peers).host):
        yield f"peer_listener {peers}", "other programs can act as brokers there (peer_tls: mutual)"


def _listeners(settings: Settings) -> list[tuple[str, ListenerSpec]]:
    return [(spec, parse_listen(spec)) for spec in settings.listeners]


def access_control_of(
    settings: Settings,
    files: FollowedFiles | None,
    image: Callable[[], ClusterImage],
    clock: Clock,
    elapsed: Clock,
    threads: Executor,
    *,
    data_directory: Path,
    broker_id: int,
) -> AccessControl:
    """`files`: of listeners with ?tls=mutual; None: there are none. `clock`: wall-clock time. `threads`: for
    questions to other programs. Blocking. Raises `BrokerError`.
    """
    clocks = Clocks(wall=lambda: clock() / 1e6, elapsed=lambda: elapsed() / 1e6)
    certificates = None if files is None else ClientCertificates(files, clocks.wall)
    tokens: list[TokenSource] = []
    if settings.authentication == "required":
        if not settings.superuser_names:
            raise BrokerError(
                "authentication is required, but superusers is empty, so no principal could add rules; name "
                "one, for example user:admin"
            )
        tokens += _local_token(data_directory, broker_id)
        tokens.append(ClusterTokens(image, clocks.wall))
        tokens += _other_tokens(settings, clocks, threads)
    return AccessControl(
        Authentication(
            required=settings.authentication == "required", certificates=certificates, tokens=tokens
        ),
        Authorization(image, frozenset(settings.superuser_names)),
    )


def _local_token(data_directory: Path, broker_id: int) -> list[TokenSource]:
    try:
        return [LocalToken.create(data_directory, broker_id)]
    except OSError as error:
        # A broker must start on a full disk, because its start frees room.
        log.warning(
            "the local token cannot be written; until the next start, commands on this machine need other "
            "credentials",
            reason=str(error),
        )
        return []


def _other_tokens(settings: Settings, clocks: Clocks, threads: Executor) -> list[TokenSource]:
    """Those of OpenID Connect first: Kubernetes is asked about all tokens of the same form that are left."""
    found: list[TokenSource] = []
    if settings.oidc_issuer:
        keys = settings.oidc_keys
        if not keys:
            raise BrokerError(
                "oidc_issuer is set, but oidc_keys is empty; give the address or the path of the keys (JWKS)"
            )
        source = (
            KeyAddress(keys, settings.oidc_authorities)
            if keys.startswith("https://")
            else KeyFile(Path(keys))
        )
        provider = Provider(
            settings.oidc_issuer,
            settings.token_audience,
            settings.oidc_principal_claim,
            settings.oidc_groups_claim,
        )
        found.append(OpenId(provider, lambda: in_thread(threads, source.read), clocks))
    if settings.token_review_url:
        server = ApiServer(
            settings.token_review_url,
            Path(settings.token_review_token),
            settings.token_review_authorities,
            settings.token_audience,
        )
        found.append(
            ServiceAccounts(
                lambda token: in_thread(threads, server.review, token), settings.token_audience, clocks
            )
        )
    return found
