"""The machine alone: the disk, the page cache, the loopback network.

Each is a case of its own (`phys.…`). Converted to records, each is also a contender beside the peers,
measured in the same rounds: it shows how far a case is from what the machine can do. `python -m
bench.alone.physical PORT MEGABYTES` is the sending side of the network.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Literal

from bench.harness.model import OURS, Contender, Sample
from bench.harness.processes import ROOT, python
from bench.harness.stage import Stage
from bench.measuring.latency import summary_ms
from bench.ours.client import arrow_batches, records_per_batch
from tidelog.records import encode_batch, to_columns
from tidelog_broker.storage.files.os_files import OsFiles

BLOCK_BYTES = 1 << 20
SMALL_BYTES = 4096
FILE_BYTES_MAX = 1 << 30
SECONDS_BESIDE_PEERS_MAX = 1.0
"""Longest measurement as a contender: more time would not change the figure."""

MANY_FILES = 512
MANY_FILES_BYTES = 800
"""Written to each before a flush: about a batch of one record."""
FLUSH_THREADS = 4
"""The number of a broker's flush threads."""

LOOPBACK_BYTES = 1_500_000_000


@cache
def stored_bytes(size: int) -> float:
    """Bytes of one record on our disk and wire, in batches of the usual size."""
    batch = to_columns(arrow_batches(size, 1)[0], now_us=0)
    return len(encode_batch(batch)) / records_per_batch(size)


def fdatasync(folder: Path, seconds: float) -> Sample:
    """Milliseconds for a 4 KiB write at the end of a file and its fdatasync."""
    path, block = folder / "phys-fdatasync", os.urandom(SMALL_BYTES)
    with path.open("wb", buffering=0) as file:
        took = []
        until = perf_counter() + seconds
        while perf_counter() < until:
            began = perf_counter_ns()
            file.write(block)
            os.fdatasync(file.fileno())
            took.append(perf_counter_ns() - began)
    path.unlink()
    found = summary_ms(took)
    return Sample(found["p50_ms"], found)


def sequential(folder: Path, seconds: float, *, fsync: bool) -> Sample:
    """Megabytes per second of 1 MiB writes at the end of a file, each made durable or not."""
    path, block = folder / "phys-sequential", os.urandom(BLOCK_BYTES)
    written, began = 0, perf_counter()
    with path.open("wb", buffering=0) as file:
        while written < FILE_BYTES_MAX and perf_counter() - began < seconds:
            written += file.write(block)
            if fsync:
                os.fdatasync(file.fileno())
        took = perf_counter() - began
    path.unlink()
    return Sample(written / took / 1e6)


def many_files(folder: Path, seconds: float, *, how: Literal["turn", "threads", "syncfs"]) -> Sample:
    """Milliseconds to make a small write to each of many files durable.

    A syncfs also flushes what other programs wrote to the file system, so only a quiet one gives a true
    figure.
    """
    block = os.urandom(MANY_FILES_BYTES)
    volume = OsFiles().open_volume(str(folder))
    with (
        tempfile.TemporaryDirectory(prefix="phys-", dir=folder) as root,
        ThreadPoolExecutor(FLUSH_THREADS) as pool,
    ):
        files = [os.open(f"{root}/{number}", os.O_RDWR | os.O_CREAT) for number in range(MANY_FILES)]
        took: list[int] = []
        until = perf_counter() + seconds
        while perf_counter() < until or not took:
            for file in files:
                os.write(file, block)
            began = perf_counter_ns()
            if how == "syncfs":
                volume.syncfs()
            else:
                for _ in (pool.map if how == "threads" else map)(os.fdatasync, files):
                    pass
            took.append(perf_counter_ns() - began)
        for file in files:
            os.close(file)
    volume.close()
    found = summary_ms(took)
    return Sample(found["p50_ms"], found)


def loopback() -> Sample:
    """Megabytes per second through a TCP connection between two processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = python("bench.alone.physical", server.getsockname()[1], LOOPBACK_BYTES // BLOCK_BYTES)
        sender = subprocess.Popen(command, cwd=ROOT)
        try:
            server.settimeout(20)
            connection, _ = server.accept()
            with connection:
                buffer, got, began = bytearray(BLOCK_BYTES), 0, perf_counter()
                while count := connection.recv_into(buffer):
                    got += count
                took = perf_counter() - began
        finally:
            sender.kill()
            sender.wait()
    return Sample(got / took / 1e6)


def send(port: int, megabytes: int) -> None:
    block = os.urandom(BLOCK_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(megabytes):
            connection.sendall(block)


# --- as cases

Ours = Callable[[Stage], Contender]


def alone(measure: Callable[[Path, float], Sample], **settings: object) -> Ours:
    """A physical measurement as a case of its own."""
    return lambda stage: Contender(OURS, lambda seconds: measure(stage.folder, seconds), settings)


# --- as contenders


def write(stage: Stage, *, fsync: bool, size: int, copies: int = 1) -> Contender:
    """Writes our records as 1 MiB blocks, without network or checks; all copies go to this one disk."""

    def measure(seconds: float) -> Sample:
        found = sequential(stage.folder, min(seconds, SECONDS_BESIDE_PEERS_MAX), fsync=fsync)
        return Sample(found.value * 1e6 / stored_bytes(size) / copies, {"mb_per_s": found.value})

    how = "write + fdatasync" if fsync else "write to the page cache"
    if copies > 1:
        how += f" ÷ {copies}"
    return Contender(
        f"physical ({how})", measure, {"block_bytes": BLOCK_BYTES, "record_bytes": stored_bytes(size)}
    )


def network(_stage: Stage, *, size: int) -> Contender:
    """Sends the bytes of our records over loopback TCP."""

    def measure(_seconds: float) -> Sample:
        found = loopback()
        return Sample(found.value * 1e6 / stored_bytes(size), {"mb_per_s": found.value})

    return Contender("physical (loopback TCP)", measure, {"record_bytes": stored_bytes(size)})


if __name__ == "__main__":
    send(int(sys.argv[1]), int(sys.argv[2]))
