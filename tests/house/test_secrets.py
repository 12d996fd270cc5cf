"""No file of the repository holds a private key or a token that could be real."""

from __future__ import annotations

import re
import secrets
import subprocess

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from house.sources import ROOT
from tidelog.model.access import TOKEN_PREFIX
from tidelog_broker.identity import local_token

SECRETS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{16}"),
    "a token": re.compile(rf"({TOKEN_PREFIX}|{local_token.PREFIX})[A-Za-z0-9_-]{{40,}}"),
    "a JSON Web Token": re.compile(r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
}


def found_in(text: str) -> list[str]:
    return [name for name, pattern in SECRETS.items() if pattern.search(text)]


def test_no_file_holds_a_secret() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    texts = {path: path.read_text("utf-8", "replace") for path in paths if path.is_file()}

    assert len(texts) > 1000
    assert {str(path): found for path, text in texts.items() if (found := found_in(text))} == {}


def _private_key() -> str:
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(*form).decode()


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("a private key", _private_key()),
        ("a token", TOKEN_PREFIX + secrets.token_urlsafe(32)),
        ("a token", local_token.PREFIX + secrets.token_urlsafe(local_token.SECRET_BYTES)),
        ("a JSON Web Token", jwt.encode({"sub": "ann"}, "k" * 32, "HS256")),
    ],
    ids=["key", "token", "local token", "jwt"],
)
def test_a_secret_is_found(name: str, secret: str) -> None:
    assert found_in(f"given: {secret}\n") == [name]
