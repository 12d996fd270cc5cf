"""Tokens of an OpenID Connect provider: who they name, and each way in which they can be wrong."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import math
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tidelog.errors import Unauthenticated, Unavailable
from tidelog_broker.identity.identity import Clocks
from tidelog_broker.identity.openid import (
    KEYS_SECONDS,
    LEEWAY_SECONDS,
    NEW_KEYS_SECONDS_MIN,
    OpenId,
    Provider,
)

ISSUER = "https://login.example.com/"
NOW = 1_800_000_000.0


class Issuer:
    """A provider, its keys and its clock."""

    def __init__(self) -> None:
        self.now = NOW
        self.elapsed = 7.0
        self.readings = 0
        self.broken = False
        self._keys: dict[str, Any] = {}
        self.published: list[str] = []
        self.add("one")

    def add(self, key_id: str) -> None:
        self._keys[key_id] = ec.generate_private_key(ec.SECP256R1())
        self.published.append(key_id)

    async def read(self) -> bytes:
        self.readings += 1
        if self.broken:
            raise OSError("connection refused")
        keys = []
        for key_id in self.published:
            text = jwt.get_algorithm_by_name("ES256").to_jwk(self._keys[key_id].public_key())
            keys.append({**json.loads(text), "kid": key_id, "use": "sig"})
        return json.dumps({"keys": keys}).encode()

    def token(self, key_id: str = "one", algorithm: str = "ES256", **claims: Any) -> str:
        said = {"iss": ISSUER, "aud": "tidelog", "sub": "ann", "exp": self.now + 600, **claims}
        return jwt.encode(
            {name: value for name, value in said.items() if value is not None},
            self._keys[key_id],
            algorithm,
            {"kid": key_id},
        )

    def source(self, **provider: str) -> OpenId:
        return OpenId(
            Provider(ISSUER, "tidelog", **provider),
            self.read,
            Clocks(wall=lambda: self.now, elapsed=lambda: self.elapsed),
        )


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


async def test_a_token_names_a_principal_and_its_groups(issuer: Issuer) -> None:
    identity = await issuer.source().identity_of(
        issuer.token(groups=["shop", 7, " ", "system:masters", "pay"])
    )

    assert identity.principals == ("oidc:ann", "group:shop", "group:pay")
    assert identity.doubt() == ""


async def test_other_claims_can_name_them(issuer: Issuer) -> None:
    source = issuer.source(principal_claim="email", groups_claim="roles")

    identity = await source.identity_of(issuer.token(email="ann@example.com", roles=["shop"]))

    assert identity.principals == ("oidc:ann@example.com", "group:shop")


def test_tokens_of_other_issuers_are_left_to_other_sources(issuer: Issuer) -> None:
    source = issuer.source()

    assert source.takes(issuer.token())
    assert not source.takes(issuer.token(iss="https://kubernetes.default.svc"))
    assert not source.takes("a.b.c")
    assert not source.takes("tlt_abc")


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"aud": "other"}, "Audience doesn't match"),
        ({"aud": None}, 'missing the "aud" claim'),
        ({"exp": None}, 'missing the "exp" claim'),
        ({"exp": NOW - LEEWAY_SECONDS}, "has expired"),
        ({"exp": True}, "does not say when it expires"),
        ({"exp": math.inf}, "does not say when it expires"),
        ({"exp": math.nan}, "does not say when it expires"),
        ({"exp": 10**300}, "does not say when it expires"),
        ({"nbf": math.inf}, "is not valid"),
        ({"sub": None}, "names no principal in its claim 'sub'"),
        ({"sub": ""}, "names no principal"),
        ({"sub": "two\nlines"}, "names no principal"),
        ({"iss": "https://other/"}, "issuer"),
    ],
)
async def test_wrong_claims_are_refused(issuer: Issuer, claims: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Unauthenticated, match=sentence):
        await issuer.source().identity_of(issuer.token(**claims))


async def test_a_token_that_another_key_signed_is_refused(issuer: Issuer) -> None:
    other = Issuer()

    with pytest.raises(Unauthenticated, match="is not valid: Signature verification failed"):
        await issuer.source().identity_of(other.token())


async def test_a_token_without_a_signature_is_refused(issuer: Issuer) -> None:
    claims = {"iss": ISSUER, "aud": "tidelog", "sub": "ann", "exp": NOW + 60}

    with pytest.raises(Unauthenticated, match="is not valid"):
        await issuer.source().identity_of(jwt.encode(claims, "", "none", {"kid": "one"}))


async def test_the_public_key_is_no_secret_to_sign_with(issuer: Issuer) -> None:
    public = (
        issuer._keys["one"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    _, claims, _ = issuer.token().split(".")
    header = _base64(json.dumps({"alg": "HS256", "kid": "one"}).encode())
    signature = hmac.digest(public, f"{header}.{claims}".encode(), "sha256")

    with pytest.raises(Unauthenticated, match="is not valid"):
        await issuer.source().identity_of(f"{header}.{claims}.{_base64(signature)}")


@pytest.mark.parametrize("part", [0, 1])
async def test_a_token_that_is_nested_too_deeply_is_refused(issuer: Issuer, part: int) -> None:
    parts = issuer.token().split(".")
    parts[part] = _base64(b'{"kid":"one","exp":' + b"[" * 5000 + b"]" * 5000 + b"}")

    assert not issuer.source().takes(".".join(parts))
    with pytest.raises(Unauthenticated, match=r"is not a JSON Web Token|is not valid"):
        await issuer.source().identity_of(".".join(parts))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def test_a_token_ends_when_it_expires(issuer: Issuer) -> None:
    source = issuer.source()
    identity = await source.identity_of(token := issuer.token(exp=NOW + 10))

    issuer.now = NOW + 10 + LEEWAY_SECONDS

    assert "has expired" in identity.doubt()
    with pytest.raises(Unauthenticated, match="has expired"):
        await source.identity_of(token)


async def test_a_key_that_is_withdrawn_counts_until_the_keys_are_read_again(issuer: Issuer) -> None:
    source = issuer.source()
    issuer.add("two")
    identity = await source.identity_of(issuer.token("two", exp=NOW + 10_000))
    issuer.published.remove("two")

    issuer.now -= 100 * KEYS_SECONDS
    issuer.elapsed += KEYS_SECONDS
    assert identity.doubt() == ""
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))

    assert "was withdrawn" in identity.doubt()


async def test_a_new_key_is_read_when_a_token_names_it_but_not_too_often(issuer: Issuer) -> None:
    source = issuer.source()
    await source.identity_of(issuer.token())
    issuer.add("two")
    issuer.elapsed += NEW_KEYS_SECONDS_MIN

    assert (await source.identity_of(issuer.token("two"))).principal == "oidc:ann"
    readings = issuer.readings
    issuer.add("three")
    for _ in range(5):
        with pytest.raises(Unauthenticated, match="does not publish"):
            await source.identity_of(issuer.token("three"))
    assert issuer.readings == readings


async def test_while_the_keys_cannot_be_read_the_last_ones_count(issuer: Issuer) -> None:
    source = issuer.source()
    await source.identity_of(issuer.token())
    issuer.broken = True
    issuer.elapsed += KEYS_SECONDS

    assert (await source.identity_of(issuer.token(sub="bob"))).principal == "oidc:bob"


async def test_without_any_keys_the_client_may_try_again(issuer: Issuer) -> None:
    issuer.broken = True

    with pytest.raises(Unavailable, match=r"the keys of .* cannot be read"):
        await issuer.source().identity_of(issuer.token())


async def test_a_key_of_another_kind_is_not_used(issuer: Issuer) -> None:
    """The token says ES256, and the published key is an RSA key of the same id."""
    source = issuer.source()
    token = issuer.token()
    rsa_key = rsa.generate_private_key(65537, 2048).public_key()
    text = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(rsa_key))

    async def read() -> bytes:
        return json.dumps({"keys": [{**text, "kid": "one", "use": "sig"}]}).encode()

    issuer.read = read  # type: ignore[method-assign]
    source = issuer.source()

    with pytest.raises(Unauthenticated, match="is not valid"):
        await source.identity_of(token)
