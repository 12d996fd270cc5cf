"""The files of TLS that a broker does not start with, and the sentence that says why."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support.certificates import DAY, Authority
from tidelog_broker.tls.credentials import Credentials
from tidelog_broker.tls.files import TlsFiles, TlsFilesInvalid
from tidelog_broker.tls.names import BrokerName, NameInvalid, broker_in


def protect(files: TlsFiles) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    protected = serialization.BestAvailableEncryption(b"secret")
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protected)
    )


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda files: files.certificate.unlink(), "tls.crt cannot be read: No such file"),
        (lambda files: files.key.unlink(), "tls.key cannot be read: No such file"),
        (lambda files: files.certificate.write_text("no"), "does not begin with a certificate in PEM"),
        (lambda files: files.key.write_text("no"), "tls.key is not the key of the certificate in"),
        (protect, "tls.key is protected by a password; give a private key without a password"),
        (lambda files: files.authorities.write_text("no"), "ca.crt holds no certificates of authorities"),
        (lambda files: files.certificate.write_bytes(b"x" * (2 << 20)), "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, spoil: Callable[[TlsFiles], None], sentence: str
) -> None:
    files = Authority().issue_broker(tmp_path, 1)
    spoil(files)

    with pytest.raises(TlsFilesInvalid) as refused:
        Credentials(files)

    assert sentence in str(refused.value)


def test_a_certificate_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsFilesInvalid, match="has no subject alternative name; it needs a URI such as"):
        Credentials(Authority().issue(tmp_path))


def test_the_name_is_read_beside_uris_of_others(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "spiffe://a/b", "tidelog://a.b-1/broker/20")

    assert Credentials(files).name == BrokerName("a.b-1", 20)


def test_the_earliest_end_of_certificate_and_authority_counts(tmp_path: Path) -> None:
    now = time.time()

    later = Credentials(
        Authority(lasts=DAY).issue_broker(tmp_path / "1", 1, lasts=3 * DAY)
    ).files.last.expires
    earlier = Credentials(
        Authority(lasts=3 * DAY).issue_broker(tmp_path / "2", 2, lasts=2 * DAY)
    ).files.last.expires

    assert later - now == pytest.approx(86_400, abs=100)
    assert earlier - now == pytest.approx(2 * 86_400, abs=100)


@pytest.mark.parametrize(
    ("uris", "sentence"),
    [
        ((), "has no URI such as tidelog://main/broker/0"),
        (("https://main/broker/1",), "has no URI such as"),
        (("tidelog://main/broker/1", "tidelog://main/broker/2"), "more than one URI"),
        *(
            ((uri,), "is not like tidelog://main/broker/0")
            for uri in (
                "tidelog://main/broker/01",
                "tidelog://main/broker/-1",
                "tidelog:///broker/1",
                "tidelog://main/broker/1/",
                "tidelog://main/broker/1\n",
                "tidelog://main/user/1",
                "tidelog://main/broker/12345678901",
            )
        ),
    ],
)
def test_a_wrong_name_is_refused(uris: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(NameInvalid, match=sentence):
        broker_in(uris)
