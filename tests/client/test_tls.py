"""The files of a client with TLS: what is refused, and when they are read again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from support.certificates import Authority
from tidelog import ClientOptions, Tls
from tidelog._connecting.tls import LOOK_S, Credentials
from tidelog.errors import InvalidRequest
from tidelog_broker.tls.files import TlsFiles


def tls_of(files: TlsFiles) -> Tls:
    return Tls(authorities=files.authorities or "", certificate=files.certificate, key=files.key)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda files: files.authorities.unlink(), "ca.crt cannot be read: No such file"),
        (
            lambda files: files.authorities.write_text("no"),
            "ca.crt holds no certificates of authorities in PEM",
        ),
        (lambda files: files.key.write_text("no"), "tls.key is not the key of the certificate in"),
        (lambda files: files.certificate.write_bytes(b"x" * (2 << 20)), "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, spoil: Callable[[TlsFiles], None], sentence: str
) -> None:
    files = Authority().issue(tmp_path)
    spoil(files)

    with pytest.raises(InvalidRequest) as refused:
        tidelog.connect("localhost:9210", tls=tls_of(files))

    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"certificate": "a"}, "tls.certificate is given without tls.key; give both, or neither"),
        ({"key": "a"}, "tls.key is given without tls.certificate"),
        ({"authorities": 5}, "tls.authorities is 5; give the path of a PEM file"),
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Tls(**wrong)

    assert sentence in str(refused.value)


def test_tls_is_a_tls() -> None:
    wrong: Any = {"tls": True}
    with pytest.raises(InvalidRequest, match="tls is True"):
        ClientOptions(**wrong)


def test_renewed_files_are_used_once_they_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    authority = Authority()
    files = authority.issue(tmp_path / "client")
    other = authority.issue(tmp_path / "other")
    credentials = Credentials(tls_of(files))
    first = credentials.for_channels

    other.certificate.replace(files.certificate)
    assert not credentials.renewed()
    now += LOOK_S
    assert not credentials.renewed()
    other.key.replace(files.key)
    now += LOOK_S
    assert credentials.renewed()
    assert credentials.for_channels is not first
    now += LOOK_S
    assert not credentials.renewed()
