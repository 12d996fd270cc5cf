"""The client for Node, which needs only the .proto files, works with a real broker."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.broker import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS_MAX = 90


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """The example with its packages, outside the repository."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("NOT RUN: the Node example needs node and npm")
    folder = tmp_path / "node-client"
    source = ROOT / "examples" / "node-client"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules"))
    try:
        installed = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--silent"],
            cwd=folder, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"NOT RUN: npm did not install the example's packages in {INSTALL_SECONDS_MAX} s")
    if installed.returncode:
        pytest.skip(f"NOT RUN: npm could not install the example's packages: {installed.stderr[-300:]}")
    return folder


def _run(client: Path, address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", "main.js", address, str(ROOT / "proto")],
        cwd=client, check=False, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


@pytest.mark.slow
def test_the_node_client_creates_publishes_and_fetches(client: Path, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    with BrokerProcess(tmp_path / "broker") as broker:
        first, second = _run(client, broker.address), _run(client, broker.address)
    assert first.stderr == ""
    assert first.stdout.splitlines() == [
        "stream from-node has 1 partition",
        "recorded at offset 0",
        "recorded at offset 1",
        "recorded at offset 2",
        "0: hello from Node",
        "1: with a header",
        "2: only once",
    ]
    assert "recorded at offset 2 (it was recorded before)" in second.stdout
    unreachable = _run(client, "127.0.0.1:1")
    assert unreachable.returncode == 1
    assert "UNAVAILABLE" in unreachable.stderr
