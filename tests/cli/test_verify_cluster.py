"""`tidelog verify --cluster` and `--history`: what is sound passes, what is not is named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Call, Cluster, flip
from history.test_check import honest
from support.broker import BrokerProcess
from tidelog.cli.errors import Exit
from tidelog.history import lines_of

RECORDS = 8


@pytest.fixture
def broker(tmp_path: Path, offline: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    """It has a stream `orders` of small segments."""
    with BrokerProcess(tmp_path) as process:
        monkeypatch.setenv("TIDELOG_SERVER", process.address)
        sizes = ("--segment-bytes", "4KiB", "--batch-bytes-max", "4KiB")
        assert offline("stream", "create", "orders", *sizes).code == 0
        for number in range(RECORDS):
            assert offline("produce", "orders", f"{number} " + "x" * 900).code == 0
        yield process


def test_a_sound_cluster_is_clean_and_the_count_is_that_of_its_records(
    broker: BrokerProcess, offline: Call
) -> None:
    answer = offline("verify", "--cluster", "-o", "json")
    report = json.loads(answer.out)

    assert (answer.code, report["clean"], report["problems"]) == (Exit.OK, True, [])
    assert (report["partitions"], report["replicas"], report["records"]) == (1, 1, RECORDS)
    assert offline("verify", "--cluster", "--stream", "ord.*").out.endswith("\nclean\n")


def test_a_byte_that_rotted_under_a_running_broker_is_found_with_its_offsets(
    broker: BrokerProcess, offline: Call
) -> None:
    (partition,) = (broker.data / "streams").glob("orders~*/0")
    segment = sorted(partition.glob("*.log"))[1]
    flip(segment, 600)

    answer = offline("verify", "--cluster", "-o", "json")

    assert answer.code == Exit.FAILED
    (problem,) = json.loads(answer.out)["problems"]
    first = int(segment.stem)
    assert (problem["stream"], problem["what"], problem["start"]) == ("orders", "corrupt", first)
    assert f"problem: orders/0 on broker 0: corrupt, offset {first}: " in offline("verify", "--cluster").out


def test_a_stream_that_is_not_there_is_not_found(cluster: Cluster, tidelog: Call) -> None:
    assert tidelog("verify", "--cluster", "--stream", "nothing-like-it").code == Exit.NOT_FOUND


@pytest.mark.parametrize(
    "words", [(), ("data", "--cluster"), ("--cluster", "--history", "file"), ("data", "--stream", "x")]
)
def test_one_thing_is_verified_at_a_time(words: tuple[str, ...], offline: Call) -> None:
    assert offline("verify", *words).code == Exit.USAGE


def test_a_history_without_anomalies_is_clean(tmp_path: Path, offline: Call) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(lines_of({"orders": honest(1)})))

    answer = offline("verify", "--history", path, "-o", "json")

    assert (answer.code, json.loads(answer.out)["clean"]) == (Exit.OK, True)
    assert offline("verify", "--history", path).out.endswith("\nclean\n")


def test_a_history_in_which_a_record_was_lost_says_which(tmp_path: Path, offline: Call) -> None:
    history = honest(1)
    gone = next(read for read in history.reads if read.partition == 0)
    history.reads = [read for read in history.reads if (read.partition, read.offset) != (0, gone.offset)]
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(lines_of({"orders": history})))

    answer = offline("verify", "--history", path)

    assert answer.code == Exit.FAILED
    assert "problem: orders: " in answer.out
    assert json.loads(offline("verify", "--history", path, "-o", "json").out)["streams"]["orders"][
        "anomalies"
    ]


def test_a_file_that_is_no_history_is_refused_and_a_missing_file_is_not_found(
    tmp_path: Path, offline: Call
) -> None:
    (tmp_path / "other").write_bytes(os.urandom(100))

    assert offline("verify", "--history", tmp_path / "other").code == Exit.USAGE
    assert offline("verify", "--history", tmp_path / "nothing").code == Exit.NOT_FOUND
