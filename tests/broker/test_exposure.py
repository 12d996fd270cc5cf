"""A broker opens no address to every program unless it is told to."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tidelog.cli.local.processes import python_module
from tidelog_broker.__main__ import run
from tidelog_broker.clock import elapsed_clock, system_clock
from tidelog_broker.config.settings import Settings
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import BrokerError
from tidelog_broker.trust import access_control_of, check_exposure


def settings(**given: Any) -> Settings:
    return Settings(data_dir=Path("/data"), **given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {
            "listeners": ["a=127.0.0.1:1", "b=[::1]:2", "c=localhost:3", "d=127.8.9.1:4"],
            "http": "localhost:5",
        },
        {"listeners": ["a=10.0.0.2:1?tls=mutual"]},
        {"listeners": ["a=10.0.0.2:1?tls=server"], "authentication": "required"},
        {"http": "0.0.0.0:9211?tls=mutual"},
        {"http": "0.0.0.0:9211?tls=server", "authentication": "required"},
        {"http": ""},
        {"peer_listener": "10.0.0.2:1", "peer_tls": "mutual"},
        {"peer_listener": "127.0.0.1:1"},
        {"listeners": ["a=0.0.0.0:1"], "http": "0.0.0.0:2", "peer_listener": "0.0.0.0:3", "insecure": True},
    ],
)
def test_guarded_addresses_are_opened(given: dict[str, Any]) -> None:
    check_exposure(settings(**given))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"listeners": ["a=10.0.0.2:1"]}, "listener a=10.0.0.2:1: it has no TLS"),
        ({"listeners": ["a=0.0.0.0:1"], "authentication": "required"}, "it has no TLS"),
        ({"listeners": ["a=broker.example.com:1"]}, "it has no TLS"),
        ({"listeners": ["a=[::]:1?tls=server"]}, "its clients need no credentials"),
        ({"http": "10.0.0.2:2"}, "http 10.0.0.2:2: it has no TLS"),
        ({"http": "10.0.0.2:2?tls=server"}, "its clients need no credentials"),
        ({"peer_listener": "10.0.0.2:3"}, "other programs can act as brokers there"),
        ({"peer_listener": "10.0.0.2:3", "peer_tls": "permissive"}, "other programs can act as brokers"),
    ],
)
def test_open_addresses_are_refused_with_what_they_lack(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BrokerError, match=r"could read and write all streams\. ") as raised:
        check_exposure(settings(**given))

    assert sentence in str(raised.value)
    assert "or set insecure if you trust the network" in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--authentication", "required"), "superusers is empty, so no principal could add rules"),
        (("--authentication", "maybe"), "authentication"),
        (("--superusers", "admin"), "'admin' is not a principal; give user:NAME"),
        (("--token-review-url", "http://api"), "write https://host:port, because tokens are sent there"),
        (("--oidc-keys", "http://keys"), "the keys could be replaced"),
        (
            ("--authentication", "required", "--superusers", "user:a", "--oidc-issuer", "https://a/"),
            "oidc_issuer is set, but oidc_keys is empty",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, flags: tuple[str, ...], sentence: str) -> None:
    data = str(tmp_path / "data")
    assert run(["format", "--data-dir", data]) == 0
    command = python_module(
        "tidelog_broker", "run", "--data-dir", data, "--listener", "a=127.0.0.1:0", "--http", "", *flags
    )

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode != 0
    assert sentence in done.stderr


def test_a_broker_that_would_be_open_to_everybody_does_not_start(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert run(["format", "--data-dir", data]) == 0
    command = python_module(
        "tidelog_broker", "run", "--data-dir", data, "--listener", "a=10.0.0.2:9210", "--http", ""
    )

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode != 0
    assert "a=10.0.0.2:9210: it has no TLS" in done.stderr


def test_a_local_token_that_cannot_be_written_stops_no_broker(tmp_path: Path) -> None:
    """As on a full disk, where a start frees room."""
    with ThreadPoolExecutor(1) as threads, capture_logs() as lines:
        control = access_control_of(
            settings(authentication="required", superusers="user:admin"),
            None,
            ClusterImage,
            system_clock,
            elapsed_clock,
            threads,
            data_directory=tmp_path / "absent",
            broker_id=0,
        )

    assert control.authentication.required
    assert any("the local token cannot be written" in line["event"] for line in lines)
