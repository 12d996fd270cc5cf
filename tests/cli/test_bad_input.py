"""Bad input gives one clear sentence and an exit code that means something, never a traceback."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli.conftest import Cluster
from tidelog.cli.app import run
from tidelog.cli.errors import Exit


class Case(NamedTuple):
    """A wrong call, what it must end with and what its sentence must name."""

    name: str
    words: tuple[str, ...]
    code: Exit
    named: str


CASES = [
    Case("an unknown stream to consume", ("consume", "nowhere"), Exit.NOT_FOUND, "nowhere"),
    Case("an unknown stream to produce to", ("produce", "nowhere", "x"), Exit.NOT_FOUND, "nowhere"),
    Case("an unknown stream to describe", ("stream", "describe", "nowhere"), Exit.NOT_FOUND, "nowhere"),
    Case("an unknown stream to delete", ("stream", "delete", "nowhere", "--yes"), Exit.NOT_FOUND, "nowhere"),
    Case(
        "an unknown stream to edit",
        ("stream", "edit", "nowhere", "--subject", "a"),
        Exit.NOT_FOUND,
        "nowhere",
    ),
    Case("replicas of an unknown stream", ("cluster", "replicas", "nowhere"), Exit.NOT_FOUND, "nowhere"),
    Case("an offset beyond the end", ("consume", "STREAM", "--from", "12345"), Exit.OUT_OF_RANGE, "12345"),
    Case("a wildcard in a token", ("consume", "STREAM", "--subject", "a.b*"), Exit.USAGE, "whole tokens"),
    Case("a wrong partition to consume", ("consume", "STREAM", "-p", "7"), Exit.NOT_FOUND, "7"),
    Case("a wrong partition to produce to", ("produce", "STREAM", "x", "-p", "7"), Exit.NOT_FOUND, "7"),
    Case("a record that is too large", ("produce", "STREAM", "x" * 100_000), Exit.USAGE, "bytes"),
    Case(
        "a key beside columns",
        ("produce", "STREAM", "--format", "arrow", "--key", "k"),
        Exit.USAGE,
        "--key",
    ),
    Case("an offset beyond all", ("consume", "STREAM", "--from", "9" * 23), Exit.USAGE, "9" * 23),
    Case("a time before all", ("consume", "STREAM", "--from", "9999999999d"), Exit.USAGE, "9999999999d"),
    Case(
        "a version below all",
        ("stream", "edit", "STREAM", "--subject", "a", "--expected-version", "-1"),
        Exit.USAGE,
        "--expected-version",
    ),
    Case(
        "batches that hold nothing",
        ("stream", "edit", "STREAM", "--batch-bytes-max", "2KiB"),
        Exit.USAGE,
        "3072",
    ),
    Case(
        "a size of too many digits",
        ("stream", "edit", "STREAM", "--segment-bytes", "9" * 400),
        Exit.USAGE,
        "99",
    ),
    Case("an age of too many digits", ("consume", "STREAM", "--from", "9" * 400 + "d"), Exit.USAGE, "99"),
    Case("a host that is none", ("dev", "--host", "0.0.0.0"), Exit.USAGE, "0.0.0.0"),
    Case("a host elsewhere", ("dev", "--host", "192.0.2.7"), Exit.USAGE, "192.0.2.7"),
    Case("a broker that is down", ("stream", "list", "-s", "127.0.0.1:1"), Exit.UNAVAILABLE, "127.0.0.1:1"),
    Case("an address without sense", ("stream", "list", "-s", "no such host"), Exit.USAGE, "no such host"),
    Case("a stream name that cannot be", ("stream", "create", "no spaces"), Exit.USAGE, "no spaces"),
    Case("a subject that cannot be", ("stream", "create", "x", "--subject", "a..b"), Exit.USAGE, "a..b"),
    Case("too many partitions", ("stream", "create", "x", "--partitions", "1000000"), Exit.USAGE, "1000000"),
    Case(
        "a word for a number", ("stream", "create", "x", "--partitions", "many"), Exit.USAGE, "--partitions"
    ),
    Case("a durability there is not", ("stream", "create", "x", "--durability", "ram"), Exit.USAGE, "ram"),
    Case("a duration without a unit", ("stream", "create", "x", "--retention-age", "7"), Exit.USAGE, "7d"),
    Case("a size that is none", ("stream", "create", "x", "--retention-bytes", "big"), Exit.USAGE, "big"),
    Case("a label without a value", ("stream", "create", "x", "--label", "team"), Exit.USAGE, "NAME=VALUE"),
    Case(
        "other settings than it has",
        ("stream", "create", "STREAM", "--subject", "q"),
        Exit.CONFLICT,
        "subject",
    ),
    Case("an edit of nothing", ("stream", "edit", "STREAM"), Exit.USAGE, "nothing to change"),
    Case(
        "a version of long ago",
        ("stream", "edit", "STREAM", "--subject", "q", "--expected-version", "999999"),
        Exit.CONFLICT,
        "999999",
    ),
    Case("fewer partitions", ("stream", "edit", "THREE", "--partitions", "1"), Exit.USAGE, "partitions"),
    Case("a deletion nobody confirmed", ("stream", "delete", "STREAM"), Exit.USAGE, "--yes"),
    Case("a bad regular expression", ("stream", "list", "("), Exit.USAGE, "("),
    Case("a bad time", ("consume", "STREAM", "--from", "yesterday"), Exit.USAGE, "yesterday"),
    Case("an offset in three partitions", ("consume", "THREE", "--from", "5"), Exit.USAGE, "--partition"),
    Case(
        "an end before the start",
        ("consume", "STREAM", "--from", "10", "--until", "5"),
        Exit.USAGE,
        "--until",
    ),
    Case(
        "a time before the start",
        ("consume", "STREAM", "--from", "1h", "--until", "2h"),
        Exit.USAGE,
        "--until is before --from",
    ),
    Case("an unknown broker to cordon", ("cluster", "cordon", "9"), Exit.NOT_FOUND, "broker 9"),
    Case("an unknown broker to uncordon", ("cluster", "uncordon", "9"), Exit.NOT_FOUND, "broker 9"),
    Case("an unknown broker to drain", ("cluster", "drain", "9"), Exit.NOT_FOUND, "broker 9"),
    Case("an unknown broker to stop", ("cluster", "prepare-stop", "9"), Exit.NOT_FOUND, "broker 9"),
    Case(
        "an unknown broker to go on", ("cluster", "prepare-stop", "9", "--undo"), Exit.NOT_FOUND, "broker 9"
    ),
    Case("an unknown broker to unregister", ("cluster", "unregister", "9"), Exit.NOT_FOUND, "broker 9"),
    Case(
        "an unknown broker to unregister without a question",
        ("cluster", "unregister", "9", "--yes"),
        Exit.NOT_FOUND,
        "broker 9",
    ),
    Case("an unknown broker to vote", ("cluster", "add-voter", "9"), Exit.NOT_FOUND, "broker 9"),
    Case("an unknown broker to vote no longer", ("cluster", "remove-voter", "9"), Exit.NOT_FOUND, "broker 9"),
    Case(
        "an unknown broker to lead",
        ("cluster", "elect", "--unclean", "STREAM/0", "--broker", "9"),
        Exit.NOT_FOUND,
        "broker 9",
    ),
    Case(
        "an unknown broker to move to",
        ("cluster", "reassign", "STREAM", "--replicas", "0=9"),
        Exit.NOT_FOUND,
        "broker 9",
    ),
    Case(
        "an unknown broker to spread over",
        ("cluster", "reassign", "--brokers", "0,9"),
        Exit.NOT_FOUND,
        "broker 9",
    ),
    Case(
        "an unknown broker to spread a stream over",
        ("cluster", "reassign", "STREAM", "--brokers", "9", "--validate-only"),
        Exit.NOT_FOUND,
        "broker 9",
    ),
    Case("a format there is not", ("consume", "STREAM", "--format", "xml"), Exit.USAGE, "'--format': 'xml'"),
    Case("a command that is nearly one", ("strem",), Exit.USAGE, "Did you mean 'stream'? See tidelog --help"),
    Case(
        "a line without a separator",
        ("produce", "STREAM", "noseparator", "--key-separator", ":"),
        Exit.USAGE,
        "line 1 has no ':' between key and value: 'noseparator'",
    ),
    Case("Parquet into a pipe", ("consume", "STREAM", "--format", "parquet"), Exit.USAGE, "--output-file"),
    Case(
        "a file in a folder that is not there",
        ("consume", "STREAM", "--output-file", "/nowhere/x"),
        Exit.ENVIRONMENT,
        "/nowhere/x",
    ),
    Case("a header without a name", ("produce", "STREAM", "x", "-H", "=v"), Exit.USAGE, "NAME=VALUE"),
    Case("an unknown compression", ("produce", "STREAM", "x", "--compression", "gzip"), Exit.USAGE, "gzip"),
    Case("JSON that is none", ("produce", "STREAM", "{", "--format", "json"), Exit.USAGE, "line 1"),
    Case("a file that is not there", ("produce", "STREAM", "--file", "/nowhere"), Exit.NOT_FOUND, "/nowhere"),
    Case(
        "Arrow that is none",
        ("produce", "STREAM", "--format", "arrow", "--file", __file__),
        Exit.USAGE,
        "arrow",
    ),
    Case("a segment that is not there", ("dump", "/nowhere.log"), Exit.NOT_FOUND, "/nowhere.log"),
    Case("a segment that is none", ("dump", __file__), Exit.FAILED, "TLB1"),
    Case("no data directory", ("verify", "/nowhere"), Exit.NOT_FOUND, "/nowhere"),
    Case("a folder that is no data directory", ("verify", "EMPTY"), Exit.NOT_FOUND, "data directory"),
    Case("a data directory in use", ("verify", "DATA"), Exit.ENVIRONMENT, "in use"),
    Case(
        "a folder that cannot be written",
        ("dev", "--data", "/proc/tidelog"),
        Exit.ENVIRONMENT,
        "/proc/tidelog",
    ),
    Case("a port that is taken", ("dev", "--data", "EMPTY", "--port", "TAKEN"), Exit.ENVIRONMENT, "in use"),
    Case("a port there is not", ("dev", "--port", "70000"), Exit.USAGE, "--port"),
    Case("a command there is not", ("stream", "lst"), Exit.USAGE, "lst"),
    Case("an option there is not", ("consume", "STREAM", "--bogus"), Exit.USAGE, "--bogus"),
    Case("a missing argument", ("stream", "describe"), Exit.USAGE, "name"),
]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(scope="module")
def names(cluster: Cluster) -> dict[str, str]:
    """The streams that the calls are about."""
    server = ("--server", cluster.server)
    with ThreadPoolExecutor(1) as thread:  # see conftest
        for words in (["bad-input", "--batch-bytes-max", "64KiB"], ["bad-input-three", "--partitions", "3"]):
            assert thread.submit(run, ["stream", "create", *words, *server]).result() == 0
    return {"STREAM": "bad-input", "THREE": "bad-input-three"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_wrong_call_ends_with_one_sentence_and_its_code(
    case: Case, tidelog: Any, cluster: Any, names: dict[str, str], tmp_path: Path, taken_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("TIDELOG_DEBUG", raising=False)
    monkeypatch.setattr(sys, "stdin", open("/dev/null"))  # noqa: SIM115
    places = {**names, "EMPTY": str(tmp_path), "DATA": str(cluster.data), "TAKEN": str(taken_port)}

    answer = tidelog(*(places.get(word, word) for word in case.words))
    sys.stdin.close()

    assert answer.code == case.code, answer
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("tidelog: ")
    assert case.named in lines[0]
    assert "Traceback" not in answer.out + answer.err


def test_a_record_too_large_in_a_file_names_how_far_it_came(
    tidelog: Any, stream: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"small\n" + b"x" * 2_000_000 + b"\n")

    answer = tidelog("produce", stream, "--file", lines)

    assert answer.code == Exit.USAGE
    assert "(2 records were read)" in answer.err


def test_the_traceback_is_shown_on_demand(tidelog: Any) -> None:
    answer = tidelog("--debug", "stream", "describe", "nowhere")

    assert answer.code == Exit.NOT_FOUND
    assert answer.err.splitlines()[0].startswith("tidelog: ")
    assert "StreamNotFound" in answer.err


def test_an_error_leaves_standard_output_to_results(tidelog: Any) -> None:
    answer = tidelog("stream", "describe", "nowhere", "--output", "json")

    assert answer.out == ""


def test_a_bug_is_one_sentence_too(tidelog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.cli.stream.command.connected", lambda *_: dict[str, str]()["not there"])

    answer = tidelog("stream", "list")

    assert answer.code == Exit.FAILED
    assert answer.err.startswith("tidelog: this is a bug in tidelog (KeyError: 'not there')")
    assert len(answer.err.splitlines()) == 1
