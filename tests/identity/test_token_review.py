"""Tokens of service accounts, reviewed by a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, time

import pytest

from support.kube.control_plane import ControlPlane
from support.waiting import until_true
from tidelog.errors import Unauthenticated, Unavailable
from tidelog_broker.identity.identity import Clocks
from tidelog_broker.identity.service_accounts import REVIEW_SECONDS, ServiceAccounts
from tidelog_broker.identity.sources import ApiServer, in_thread

NAMESPACE = "shop"


class Clock:
    """Real time, and more of it."""

    def __init__(self) -> None:
        self.more = 0.0

    @property
    def clocks(self) -> Clocks:
        return Clocks(wall=time, elapsed=lambda: monotonic() + self.more)


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> ApiServer:
    """The API server, asked with the token of a broker's service account."""
    plane.kubectl("create", "namespace", NAMESPACE)
    for name in ("broker", "billing"):
        plane.kubectl("create", "serviceaccount", name, "--namespace", NAMESPACE)
    plane.kubectl(
        "create", "clusterrolebinding", "broker", "--clusterrole", "system:auth-delegator",
        f"--serviceaccount={NAMESPACE}:broker",
    )  # fmt: skip
    path = plane.folder / "broker-token"
    path.write_text(plane.kubectl("create", "token", "broker", "--namespace", NAMESPACE))
    return ApiServer(plane.url, path, str(plane.folder / "ca.crt"), "tidelog")


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def source(server: ApiServer, threads: ThreadPoolExecutor, clock: Clock | None = None) -> ServiceAccounts:
    return ServiceAccounts(
        lambda token: in_thread(threads, server.review, token), "tidelog", (clock or Clock()).clocks
    )


def token(plane: ControlPlane, account: str = "billing", *audience: str) -> str:
    audiences = [f"--audience={one}" for one in audience or ("tidelog",)]
    return plane.kubectl("create", "token", account, "--namespace", NAMESPACE, *audiences).strip()


async def test_a_bound_token_names_its_service_account(
    plane: ControlPlane, server: ApiServer, threads: ThreadPoolExecutor
) -> None:
    identity = await source(server, threads).identity_of(token(plane))

    assert identity.principal == "serviceaccount:shop/billing"
    assert "group:system:serviceaccounts:shop" in identity.groups


async def test_a_token_for_another_audience_is_refused(
    plane: ControlPlane, server: ApiServer, threads: ThreadPoolExecutor
) -> None:
    with pytest.raises(Unauthenticated, match="with the audience 'tidelog'"):
        await source(server, threads).identity_of(token(plane, "billing", "vault"))


async def test_a_token_with_a_changed_signature_is_refused(
    plane: ControlPlane, server: ApiServer, threads: ThreadPoolExecutor
) -> None:
    head, claims, signature = token(plane).split(".")
    other = "B" if signature[0] == "A" else "A"

    with pytest.raises(Unauthenticated, match="refused the token"):
        await source(server, threads).identity_of(f"{head}.{claims}.{other}{signature[1:]}")


async def test_a_deleted_service_account_is_refused(
    plane: ControlPlane, server: ApiServer, threads: ThreadPoolExecutor
) -> None:
    plane.kubectl("create", "serviceaccount", "leaver", "--namespace", NAMESPACE)
    given, clock = token(plane, "leaver"), Clock()
    accounts = source(server, threads, clock)
    identity = await accounts.identity_of(given)
    plane.kubectl("delete", "serviceaccount", "leaver", "--namespace", NAMESPACE)

    async def refused() -> bool:
        """The API server itself remembers tokens for some ten seconds."""
        clock.more += REVIEW_SECONDS
        try:
            await accounts.identity_of(given)
        except Unauthenticated as error:
            return "refused the token" in str(error)
        return False

    await until_true(refused, "the token is refused", 40)
    assert "refused the token" in identity.doubt()


async def test_a_broker_that_may_not_ask_says_so(
    plane: ControlPlane, server: ApiServer, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token(plane, "billing", plane.url))
    helpless = server._replace(token=tmp_path / "token")

    with pytest.raises(Unavailable, match="answered 403 Forbidden"):
        await source(helpless, threads).identity_of(token(plane))


async def test_an_api_server_that_cannot_be_reached_or_verified(
    plane: ControlPlane, server: ApiServer, threads: ThreadPoolExecutor
) -> None:
    given = token(plane)
    for other in (server._replace(url="https://127.0.0.1:1"), server._replace(authorities="")):
        with pytest.raises(Unavailable, match="could not be asked"):
            await asyncio.wait_for(source(other, threads).identity_of(given), 30)
