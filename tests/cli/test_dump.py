"""`tidelog dump` of segment files: sound ones and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Stopped, flip
from tidelog.cli.errors import Exit
from tidelog.records import HEADER_BYTES

pytestmark = pytest.mark.slow


def test_a_segment_is_shown_batch_by_batch(offline: Any, clean: Stopped) -> None:
    answer = offline("dump", clean.segments[0])

    assert answer.code == 0
    assert "byte 0: offsets 0–0, 1 record, " in answer.out
    assert "DAMAGED" not in answer.out


def test_json_has_an_object_a_batch_with_its_records(offline: Any, clean: Stopped) -> None:
    first = json.loads(offline("dump", clean.segments[0], "--records", "-o", "json").out.splitlines()[0])

    assert (first["base_offset"], first["records"], first["sound"]) == (0, 1, True)
    assert first["columns"] == ["key", "headers"]
    assert first["rows"][0]["key"] == "k0"
    assert first["rows"][0]["value"].startswith("0 xxx")
    assert first["rows"][0]["headers"] == [{"name": "h", "value": "1"}]


def test_limit_and_from_choose_batches(offline: Any, clean: Stopped) -> None:
    segment = clean.segments[0]

    assert len(offline("dump", segment, "-o", "json", "--limit", 1).out.splitlines()) == 1
    assert (
        json.loads(offline("dump", segment, "-o", "json", "--from", 1).out.splitlines()[0])["base_offset"]
        == 1
    )


@pytest.mark.parametrize("at", [HEADER_BYTES + 10, 9], ids=["in-the-body", "in-the-header"])
def test_a_damaged_batch_is_named_and_ends_the_dump(at: int, offline: Any, stopped: Stopped) -> None:
    flip(stopped.segments[0], at)

    answer = offline("dump", stopped.segments[0], "--records")

    assert answer.code == Exit.FAILED
    assert "the batch at byte 0 is damaged" in answer.err
    assert "DAMAGED" in answer.out


def test_a_segment_of_another_partition_does_not_pass(offline: Any, clean: Stopped) -> None:
    answer = offline("dump", clean.segments[0], "--stream-id", "00" * 16, "--partition", 0)

    assert answer.code == Exit.FAILED
    assert "the header's CRC is" in answer.err


def test_without_an_identity_file_the_body_is_checked_alone(offline: Any, stopped: Stopped) -> None:
    (stopped.partition / "identity").unlink()

    answer = offline("dump", stopped.segments[0])

    assert answer.code == 0
    assert "header CRCs are not checked" in answer.out


def test_an_empty_segment_is_no_error(offline: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()

    assert offline("dump", tmp_path / "empty.log").code == 0
