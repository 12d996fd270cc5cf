"""docs/getting-started.md: its commands and programs run on a cluster, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.broker import BrokerProcess
from support.nats_server import NatsServer

DOCUMENT = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(
    r"^```(console|python)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL
)
SECONDS_MAX = 200


class Addresses(NamedTuple):
    server: str
    nats: str


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Addresses]:
    with NatsServer() as nats, BrokerProcess(tmp_path, nats=nats.url) as broker:
        yield Addresses(broker.address, nats.url)


def run(kind: str, text: str, cluster: Addresses, folder: Path) -> str:
    """Runs a block of the document in `folder` and returns its output. Raises if a command fails."""
    text = text.replace("localhost:9210", cluster.server).replace("nats://localhost:4222", cluster.nats)
    if kind == "python":
        words = [sys.executable, "-c", text]
    else:
        calls = "\n".join(line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))
        words = [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f'tidelog() {{ "{sys.executable}" -m tidelog.cli "$@"; }}\n{calls}',
        ]
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, "TIDELOG_SERVER": cluster.server},
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(SECONDS_MAX + 40)
def test_the_steps_of_the_document_work_in_their_order(cluster: Addresses, tmp_path: Path) -> None:
    output = "".join(run(kind, text, cluster, tmp_path) for kind, text in BLOCKS)

    assert len(BLOCKS) >= 8
    assert "orders 2" in output  # JetStream's acknowledgement: the second record of the stream
    assert "True" in output  # the acknowledgement of the repeat says that it is a duplicate
    assert "orders/0 offset 2" in output
    assert "b'first order'" in output
    assert "deleted stream orders" in output
    assert (tmp_path / "orders.parquet").stat().st_size > 0
