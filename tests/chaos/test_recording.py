"""The recording of a run: receipts are merged into a short history, and pauses are measured."""

from __future__ import annotations

import pytest

from chaos.disk import DiskState, FaultyFiles
from chaos.recording import Recording
from tidelog.history import Outcome, Write


def acknowledged(first: int, offset: int, records: int = 2, partition: int = 0) -> Write:
    return Write(1, partition, first, records, Outcome.ACKNOWLEDGED, offset)


def test_contiguous_receipts_become_one_write() -> None:
    recording = Recording()

    recording.wrote("orders", acknowledged(0, 10), at=1.0)
    recording.wrote("orders", acknowledged(2, 12), at=1.1)
    recording.wrote("orders", acknowledged(4, 99), at=1.2)

    assert recording.history("orders").writes == [acknowledged(0, 10, 4), acknowledged(4, 99)]
    assert recording.acknowledged == 6


def test_a_write_with_unknown_outcome_is_not_merged() -> None:
    recording = Recording()
    doubt = Write(1, 0, 2, 1, Outcome.UNKNOWN)

    recording.wrote("orders", acknowledged(0, 10), at=1.0)
    recording.wrote("orders", doubt, at=1.1)
    recording.wrote("orders", acknowledged(3, 12), at=1.2)

    assert recording.history("orders").writes == [acknowledged(0, 10), doubt, acknowledged(3, 12)]


def test_a_pause_is_measured_for_each_partition() -> None:
    recording = Recording()
    for at, partition in ((0.0, 0), (1.0, 1), (2.0, 1), (3.0, 0)):
        recording.wrote("orders", acknowledged(int(at), int(at), 1, partition), at=at)

    assert recording.longest_pause == (3.0, "orders/0")
    assert recording.take_pause() == (3.0, "orders/0")
    assert recording.take_pause().seconds == 0


def test_a_full_disk_takes_no_records_and_still_takes_metadata(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "streams").mkdir()
    state = DiskState()
    files = FaultyFiles(state)
    open_file = files.open(f"{folder}/streams/log", create=True)
    state.told("full")

    with pytest.raises(OSError, match="No space left"):
        open_file.pwrite([b"x"], 0)
    with pytest.raises(OSError, match="No space left"):
        files.open(f"{folder}/streams/other", create=True)
    other = files.open(f"{folder}/metadata", create=True)
    assert other.pwrite([b"x"], 0) == 1
    state.told("sound")
    assert open_file.pwrite([b"x"], 0) == 1
    other.close()
    open_file.close()


def test_a_disk_refuses_an_unknown_command() -> None:
    state = DiskState()
    state.told("slow 0.25")

    assert state.flush_seconds == 0.25
    with pytest.raises(ValueError, match="takes slow SECONDS, full or sound"):
        state.told("melt")
