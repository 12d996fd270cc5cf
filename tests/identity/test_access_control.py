"""Each call asks the source of its identity, and calls with the same credentials share what they may do."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.errors import Unauthenticated
from tidelog.model.access import TOKEN_PREFIX
from tidelog_broker.api.access import Authorization
from tidelog_broker.api.access_control import IDENTITIES_MAX, AccessControl
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.identity.authentication import TOKEN_CHARACTERS_MAX, Authentication
from tidelog_broker.identity.identity import Identity


class Source:
    """It gives each token an identity, and can forget it."""

    def __init__(self) -> None:
        self.asked = 0
        self.looked = 0
        self._known: dict[str, Identity] = {}
        self.gone: set[str] = set()

    def takes(self, token: str) -> bool:
        self.looked += 1
        return token.startswith(TOKEN_PREFIX)

    async def identity_of(self, token: str) -> Identity:
        self.asked += 1
        if token in self.gone:
            raise Unauthenticated("the account is gone")
        return self._known.setdefault(token, Identity(f"user:{token.removeprefix(TOKEN_PREFIX)}"))


def control_of(source: Source) -> AccessControl:
    return AccessControl(
        Authentication(required=True, tokens=[source]), Authorization(ClusterImage, frozenset())
    )


def shown(name: str) -> str:
    return f"Bearer {TOKEN_PREFIX}{name}"


async def test_a_new_call_is_not_admitted_on_an_earlier_answer() -> None:
    """The identity of a running call can be good for longer: its source decides about each new call."""
    source = Source()
    control = control_of(source)
    await control.admit(shown("ann"), ())
    source.gone.add(f"{TOKEN_PREFIX}ann")

    with pytest.raises(Unauthenticated, match="the account is gone"):
        await control.admit(shown("ann"), ())
    assert source.asked == 2


async def test_calls_with_one_token_share_what_they_may_do() -> None:
    control = control_of(Source())
    ann = await control.admit(shown("ann"), ())

    assert await control.admit(shown("ann"), ()) is ann
    assert await control.admit(shown("bob"), ()) is not ann


async def test_the_source_of_a_token_is_found_once() -> None:
    source = Source()
    control = control_of(source)
    for _ in range(3):
        await control.admit(shown("ann"), ())

    assert (source.looked, source.asked) == (1, 3)


async def test_what_is_remembered_has_a_limit() -> None:
    control = control_of(Source())
    first = await control.admit(shown("first"), ())
    await asyncio.gather(*(control.admit(shown(str(n)), ()) for n in range(IDENTITIES_MAX)))

    assert await control.admit(shown("first"), ()) is not first


@pytest.mark.parametrize(
    ("authorization", "sentence"),
    [
        ("Basic YTpi", "must be 'Bearer ' and a token"),
        ("Bearer tlt_\udce4", "characters that are not ASCII"),
        ("Bearer tlt_ä", "characters that are not ASCII"),
        ("Bearer " + "a" * (TOKEN_CHARACTERS_MAX + 1), f"more than {TOKEN_CHARACTERS_MAX} characters"),
        ("Bearer other", "is of no kind that this broker accepts"),
    ],
)
async def test_credentials_of_another_form_are_refused(authorization: str, sentence: str) -> None:
    with pytest.raises(Unauthenticated, match=sentence):
        await control_of(Source()).admit(authorization, ())
