"""What a shell hands a program besides its words: closed files, bytes that are no text, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cli.conftest import COMMAND, Cluster
from support.waiting import wait_until
from tidelog.cli.errors import Exit

SECONDS_MAX = 60

FORK = """
import asyncio, subprocess, sys

sys.argv = ["tidelog", "--version"]
from tidelog.cli import main
try:
    main()
except SystemExit:
    pass

import grpc.aio

async def fork_beside_a_call():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        for _ in range(10):
            subprocess.run(["true"], preexec_fn=lambda: None)
    await server.stop(None)

asyncio.run(fork_beside_a_call())
"""


def shell(cluster: Cluster, words: list[str], redirection: str) -> subprocess.CompletedProcess[bytes]:
    """A command line with something closed by a shell."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND, *words],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS_MAX, check=False,
        env={**os.environ, "TIDELOG_SERVER": cluster.server},
    )  # fmt: skip


@pytest.mark.parametrize("words", [["stream", "list"], ["consume", "STREAM"], ["produce", "STREAM", "x"]])
def test_a_closed_standard_output_is_one_sentence(cluster: Cluster, stream: str, words: list[str]) -> None:
    ended = shell(cluster, [stream if word == "STREAM" else word for word in words], ">&-")
    assert ended.returncode == Exit.USAGE
    assert ended.stderr.splitlines() == [
        b"tidelog: standard output is closed; redirect it to /dev/null if you do not want it"
    ]


def test_a_closed_standard_input_is_an_empty_one(cluster: Cluster, stream: str) -> None:
    ended = shell(cluster, ["produce", stream], "<&-")
    assert (ended.returncode, ended.stderr) == (Exit.OK, b"")
    assert ended.stdout.startswith(b"0 records")


def test_a_closed_standard_error_changes_no_exit_code(cluster: Cluster) -> None:
    assert shell(cluster, ["stream", "describe", "nowhere"], "2>&-").returncode == Exit.NOT_FOUND


def test_bytes_that_are_no_text_are_named_and_refused(cluster: Cluster, stream: str) -> None:
    ended = subprocess.run(
        [*COMMAND, "produce", stream, b"caf\xe9"], capture_output=True, timeout=SECONDS_MAX, check=False,
        env={**os.environ, "TIDELOG_SERVER": cluster.server},
    )  # fmt: skip
    assert ended.returncode == Exit.USAGE
    assert ended.stderr.count(b"\n") == 1
    assert b"caf\\xe9" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_reader_like_ctrl_c_and_its_file_is_whole(
    cluster: Cluster, tidelog: Any, stream: str, tmp_path: Path, number: signal.Signals
) -> None:
    tidelog("produce", stream, "one", "two")
    file = tmp_path / "records.parquet"
    with subprocess.Popen(
        [*COMMAND, "consume", stream, "--follow", "--format", "parquet", "--output-file", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TIDELOG_SERVER": cluster.server},
    ) as reader:  # fmt: skip
        try:
            wait_until(file.exists, "the reader has begun")
            reader.send_signal(number)
            _, errors = reader.communicate(timeout=SECONDS_MAX)
        finally:
            reader.kill()
    assert (reader.returncode, errors) == (128 + number, b"")
    assert pq.read_table(file).num_rows in (0, 2)


def test_grpc_never_writes_about_forks() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "true"},
    )  # fmt: skip

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_command_starts_without_pandas(cluster: Cluster, stream: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "produce", stream, "x"],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        env={**os.environ, "TIDELOG_SERVER": cluster.server},
    )  # fmt: skip

    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert ended.returncode == 0
    assert "pyarrow.lib" in imported
    assert "pandas.core.api" not in imported
