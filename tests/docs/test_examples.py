"""README.md, the reference and the pages for users of Kafka and JetStream: examples run, options exist."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import tidelog.blocking
from docs.documents import blocks, text_of
from support.broker import BrokerProcess
from support.nats_server import NatsServer
from support.waiting import wait_until
from tidelog.model import StreamConfig

SECONDS_MAX = 60
PAGES = ["docs/coming-from-kafka.md", "docs/coming-from-jetstream.md"]
OPTIONS = {
    field.name
    for options in (tidelog.ClientOptions, tidelog.ProducerOptions, tidelog.ReaderOptions, StreamConfig)
    for field in dataclasses.fields(options)
}
PARAMETERS = {"start"}
"""Names in the tables that are parameters of `Client.reader`."""


class Addresses(NamedTuple):
    broker: str
    nats: str


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    folder = tmp_path_factory.mktemp("broker")
    with NatsServer() as nats, BrokerProcess(folder, nats=nats.url) as broker:
        yield Addresses(broker.address, nats.url)


def attempt(text: str, addresses: Addresses, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program of a document in `folder`."""
    text = text.replace("localhost:9210", addresses.broker).replace("nats://localhost:4222", addresses.nats)
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip


def run(text: str, addresses: Addresses, folder: Path) -> str:
    """The output of a program of a document, which must succeed."""
    done = attempt(text, addresses, folder)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def no_streams(addresses: Addresses) -> None:
    """Every example begins with a cluster that has no streams."""
    with tidelog.blocking.connect(addresses.broker) as log:
        for stream in log.list_streams():
            log.delete_stream(stream.name)


@pytest.mark.usefixtures("no_streams")
def test_the_example_of_the_readme_runs(addresses: Addresses, tmp_path: Path) -> None:
    example, _ = [block for block in blocks("README.md") if block.language == "python"]

    output = run(example.text, addresses, tmp_path)

    assert output == "0 0\n0 b'customer-7' b'first order'\n"


@pytest.mark.long
@pytest.mark.usefixtures("no_streams")
def test_spark_reads_what_the_first_example_of_the_readme_wrote(addresses: Addresses, tmp_path: Path) -> None:
    example, of_spark = [block for block in blocks("README.md") if block.language == "python"]
    run(example.text, addresses, tmp_path)

    output = run(of_spark.text, addresses, tmp_path)

    assert "|     0|first order|" in output


@pytest.mark.usefixtures("no_streams")
@pytest.mark.parametrize("page", ["docs/reference/tidelog.md", "docs/reference/blocking.md"])
def test_the_example_of_the_reference_runs(page: str, addresses: Addresses, tmp_path: Path) -> None:
    (example,) = [block for block in blocks(page) if block.language == "python"]

    assert "0 b'kitchen' b'21.5'\n" in run(example.text, addresses, tmp_path)


@pytest.mark.usefixtures("no_streams")
def test_the_producer_and_the_consumer_for_users_of_kafka_run(addresses: Addresses, tmp_path: Path) -> None:
    produce, consume = [block.text for block in blocks(PAGES[0]) if block.mark == "tidelog"]

    run(produce, addresses, tmp_path)
    first, second = run(consume, addresses, tmp_path), run(consume, addresses, tmp_path)

    assert re.fullmatch(r"[012] 0 b'customer-7' b'first order'\n", first)
    assert second == ""  # it continues behind the positions that it kept


@pytest.mark.usefixtures("no_streams")
def test_the_programs_for_users_of_jetstream_run(addresses: Addresses, tmp_path: Path) -> None:
    create, consume = [block.text for block in blocks(PAGES[1]) if block.mark == "tidelog"]
    (publish,) = [block.text for block in blocks(PAGES[1]) if block.mark == "nats"]

    run(create, addresses, tmp_path)
    # The broker may not have subscribed yet. The message has an id, so a repeat is recorded once.
    wait_until(lambda: attempt(publish, addresses, tmp_path).returncode == 0, "an acknowledgement")
    receipt = run(publish, addresses, tmp_path)
    output = run(consume, addresses, tmp_path)

    assert receipt == "orders 1\n"
    assert output == "orders.eu b'first order'\n"


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_for_the_other_product_are_valid_python(page: str) -> None:
    others = [block.text for block in blocks(page) if block.language == "python" and not block.mark]

    for text in others:
        compile(text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    assert len(others) == 2


@pytest.mark.parametrize("page", PAGES)
def test_every_option_in_the_second_column_exists(page: str) -> None:
    table = text_of(page).partition("\n## Options\n")[2].partition("\n\n## ")[0]
    column = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    named = {name for cell in column for name in re.findall(r"`([a-z_]+)(?:=[^`]*)?`", cell)}

    assert len(named) >= 8
    assert named - OPTIONS - PARAMETERS - {"none", "lz4", "zstd"} == set()
