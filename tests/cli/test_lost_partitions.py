"""A stream that lost one of its partitions: what is shown of it, and what is left once it is deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Call
from support.broker import BrokerProcess
from tidelog.cli.errors import Exit

pytestmark = pytest.mark.slow

LOST = 2


@pytest.fixture
def broker(tmp_path: Path, offline: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    """It has a stream `two` of four partitions with a record each, and lost one of them."""
    with BrokerProcess(tmp_path) as process:
        monkeypatch.setenv("TIDELOG_SERVER", process.address)
        assert offline("stream", "create", "two", "--partitions", "4").code == 0
        for number in range(4):
            assert offline("produce", "two", "x", "-p", number).code == 0
        process.stop()
        (folder,) = (process.data / "streams").glob("two~*")
        (folder / str(LOST) / "leader-epochs").unlink()
        process.start()
        yield process


def found(offline: Callable[..., Any], *words: str) -> Any:
    answer = offline(*words, "-o", "json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_replicas_say_which_is_lost_and_why(broker: BrokerProcess, offline: Call) -> None:
    replicas = found(offline, "cluster", "replicas", "two")

    assert [replica["role"] for replica in replicas] == ["leader", "leader", "lost", "leader"]
    assert [replica["state"] for replica in replicas] == ["online", "online", "quarantined", "online"]
    assert "leader-epochs" in replicas[LOST]["reason"]
    assert replicas[0]["reason"] is None
    (line,) = [line for line in offline("cluster", "replicas").out.splitlines() if f"two/{LOST}" in line]
    assert line.split()[2:] == ["lost", "no", "quarantined"]


def test_a_deleted_stream_leaves_nothing_of_its_lost_partition(broker: BrokerProcess, offline: Call) -> None:
    assert offline("stream", "delete", "two", "--yes").code == 0
    broker.stop()
    broker.start()
    broker.stop()

    report = json.loads(offline("verify", broker.data, "-o", "json").out)
    assert report["problems"] == []
    assert offline("verify", broker.data).code == Exit.OK


def test_a_lost_partition_does_not_hide_the_others(broker: BrokerProcess, offline: Call) -> None:
    partitions = found(offline, "stream", "describe", "two")["partitions"]

    assert [one["state"] for one in partitions] == ["online", "online", "quarantined", "online"]
    assert [one.get("high_watermark") for one in partitions] == [1, 1, None, 1]
    assert "lost, quarantined" in offline("stream", "describe", "two").out
