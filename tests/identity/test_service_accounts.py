"""Tokens of service accounts: what the API server says counts, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import jwt
import pytest

from tidelog.errors import Unauthenticated, Unavailable
from tidelog_broker.identity.identity import Clocks
from tidelog_broker.identity.remembered import TOKENS_MAX
from tidelog_broker.identity.service_accounts import (
    REFUSAL_SECONDS,
    REVIEW_SECONDS,
    REVIEWS_MAX,
    UNCONFIRMED_SECONDS_MAX,
    ServiceAccounts,
)

NOW = 1_800_000_000.0


class ApiServer:
    """It knows the tokens of its accounts."""

    def __init__(self) -> None:
        self.now = NOW
        """What the wall clock of the broker shows. s."""
        self.elapsed = 7.0
        self.reviews = 0
        self.down = False
        self.known = True
        self.answer: dict[str, Any] = {
            "authenticated": True,
            "audiences": ["tidelog"],
            "user": {
                "username": "system:serviceaccount:shop:billing",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:shop"],
            },
        }

    async def review(self, token: str) -> dict[str, Any]:
        self.reviews += 1
        if self.down:
            raise OSError("connection refused")
        return self.answer if self.known else {"authenticated": False, "error": "the account is gone"}

    def source(self) -> ServiceAccounts:
        return ServiceAccounts(self.review, "tidelog", self.clocks)

    @property
    def clocks(self) -> Clocks:
        return Clocks(wall=lambda: self.now, elapsed=lambda: self.elapsed)


def token(exp: float = NOW + 100_000) -> str:
    """The API server verifies the signature, so the tests need no key of its own."""
    return jwt.encode({"exp": exp, "iss": "https://kubernetes.default.svc"}, "k" * 32, "HS256")


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


async def seen(source: ServiceAccounts) -> None:
    """Returns when reviews behind running calls have their answers."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_token_names_the_service_account_and_its_groups(server: ApiServer) -> None:
    identity = await server.source().identity_of(token())

    assert identity.principals == (
        "serviceaccount:shop/billing",
        "group:system:serviceaccounts",
        "group:system:serviceaccounts:shop",
    )


async def test_the_api_server_is_asked_once_in_a_while(server: ApiServer) -> None:
    source = server.source()
    for _ in range(10):
        await source.identity_of(token())
    assert server.reviews == 1

    server.elapsed += REVIEW_SECONDS
    await source.identity_of(token())

    assert server.reviews == 2


async def test_an_account_that_is_gone_is_refused_after_a_minute(server: ApiServer) -> None:
    source = server.source()
    identity = await source.identity_of(token())
    server.known = False
    server.elapsed += REVIEW_SECONDS

    with pytest.raises(Unauthenticated, match="the account is gone"):
        await source.identity_of(token())
    assert "the account is gone" in identity.doubt()


async def test_calls_that_run_notice_it_too(server: ApiServer) -> None:
    source = server.source()
    identity = await source.identity_of(token())
    server.known = False
    server.elapsed += REVIEW_SECONDS

    assert identity.doubt() == ""
    await seen(source)

    assert "the account is gone" in identity.doubt()


async def test_while_the_api_server_is_away_its_last_answer_counts_for_ten_minutes(server: ApiServer) -> None:
    source = server.source()
    identity = await source.identity_of(token())
    server.down = True
    server.elapsed += UNCONFIRMED_SECONDS_MAX - 1

    assert (await source.identity_of(token())) is identity
    assert identity.doubt() == ""
    server.elapsed += 1

    assert "has not confirmed the token of this call for 10 minutes" in identity.doubt()
    with pytest.raises(Unauthenticated, match="has not confirmed"):
        await source.identity_of(token())
    await seen(source)


async def test_a_token_that_was_never_reviewed_waits_for_the_api_server(server: ApiServer) -> None:
    server.down = True

    with pytest.raises(Unavailable, match=r"could not be asked .*connection refused"):
        await server.source().identity_of(token())


async def test_a_clock_that_is_set_back_prolongs_no_answer(server: ApiServer) -> None:
    source = server.source()
    identity = await source.identity_of(token())
    server.down = True
    server.now -= 10 * UNCONFIRMED_SECONDS_MAX
    server.elapsed += UNCONFIRMED_SECONDS_MAX

    assert "has not confirmed" in identity.doubt()
    await seen(source)


async def test_made_up_tokens_displace_no_account_and_end_no_call(server: ApiServer) -> None:
    source = server.source()
    identity = await source.identity_of(token())
    server.known = False
    for number in range(1, TOKENS_MAX + 2):
        with pytest.raises(Unauthenticated, match="the account is gone"):
            await source.identity_of(token(NOW + number))
    server.known = True
    reviews = server.reviews

    assert await source.identity_of(token()) is identity
    assert server.reviews == reviews


async def test_a_running_call_is_reviewed_although_its_token_was_forgotten(server: ApiServer) -> None:
    source = server.source()
    identity = await source.identity_of(token())
    for number in range(1, TOKENS_MAX + 1):
        await source.identity_of(token(NOW + number))
    server.elapsed += UNCONFIRMED_SECONDS_MAX - 1

    assert identity.doubt() == ""
    await seen(source)
    server.elapsed += REVIEW_SECONDS
    assert identity.doubt() == ""
    server.known = False
    await seen(source)
    assert "the account is gone" in identity.doubt()


async def test_calls_end_when_the_groups_of_their_token_change(server: ApiServer) -> None:
    source = server.source()
    identity = await source.identity_of(token())
    server.answer["user"]["groups"] = ["system:serviceaccounts"]
    server.elapsed += REVIEW_SECONDS

    assert (await source.identity_of(token())).groups == ("group:system:serviceaccounts",)
    assert "have changed; call again" in identity.doubt()


async def test_too_many_reviews_do_not_refuse_a_known_account(server: ApiServer) -> None:
    go, all_begun, begun = asyncio.Event(), asyncio.Event(), 0
    strangers = [token(NOW + number) for number in range(1, REVIEWS_MAX + 1)]

    async def review(text: str) -> dict[str, Any]:
        nonlocal begun
        if text not in strangers:
            return await server.review(text)
        begun += 1
        if begun == REVIEWS_MAX:
            all_begun.set()
        return await _never(go)

    source = ServiceAccounts(review, "tidelog", server.clocks)
    identity = await source.identity_of(token())
    asking = [asyncio.create_task(source.identity_of(stranger)) for stranger in strangers]
    await asyncio.wait_for(all_begun.wait(), 10)
    server.elapsed += REVIEW_SECONDS

    assert await source.identity_of(token()) is identity
    go.set()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_a_token_ends_when_it_expires(server: ApiServer) -> None:
    identity = await server.source().identity_of(token(exp=NOW + 10))
    server.now = NOW + 10

    assert "has expired" in identity.doubt()


async def test_a_refused_token_is_not_asked_about_all_the_time(server: ApiServer) -> None:
    source = server.source()
    server.known = False
    for _ in range(10):
        with pytest.raises(Unauthenticated, match="the account is gone"):
            await source.identity_of(token())
    assert server.reviews == 1

    server.known = True
    server.elapsed += REFUSAL_SECONDS

    assert (await source.identity_of(token())).principal == "serviceaccount:shop/billing"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"audiences": ["other"]}, "is not for the audience 'tidelog'"),
        ({"audiences": None}, "is not for the audience 'tidelog'"),
        ({"user": {"username": "system:node:one"}}, "is not a token of a service account"),
        ({"user": {"username": "system:serviceaccount:shop"}}, "is not a token of a service account"),
        ({"user": None}, "is not a token of a service account"),
        ({"authenticated": "yes"}, "refused the token"),
    ],
)
async def test_other_answers_name_nobody(server: ApiServer, answer: dict[str, Any], sentence: str) -> None:
    server.answer = {**server.answer, **answer}

    with pytest.raises(Unauthenticated, match=sentence):
        await server.source().identity_of(token())


async def test_calls_with_one_token_share_one_review(server: ApiServer) -> None:
    source = server.source()

    await asyncio.gather(*(source.identity_of(token()) for _ in range(20)))

    assert server.reviews == 1


async def test_reviews_have_a_limit(server: ApiServer) -> None:
    go = asyncio.Event()
    source = ServiceAccounts(lambda _: _never(go), "tidelog", ApiServer().clocks)
    asking = [asyncio.create_task(source.identity_of(token(NOW + n))) for n in range(1, REVIEWS_MAX + 1)]
    await asyncio.sleep(0)

    with pytest.raises(Unavailable, match="are being reviewed already"):
        await source.identity_of(token())
    go.set()
    await asyncio.gather(*asking, return_exceptions=True)


async def _never(go: asyncio.Event) -> dict[str, Any]:
    await go.wait()
    return {}


@pytest.mark.parametrize("text", ["a.b.c", "..", "a" * 100 + ".." + "b"])
async def test_what_is_no_token_is_refused_without_asking(server: ApiServer, text: str) -> None:
    with pytest.raises(Unauthenticated, match="is not a JSON Web Token"):
        await server.source().identity_of(text)
    assert server.reviews == 0
