"""The decoder and the validator under fire; `fuzz_run.py` says what each mode does.

Each mode runs in a process of its own: a crash of native code fails one test, a hang
meets a deadline, and memory is measured. `TIDELOG_FUZZ_SCALE=10` multiplies what is
drawn at random and walks every column set under every compression.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from records import fuzz_run
from records.forge import Forgery, reseal
from records.samples import sample_batch
from tidelog.records import validation

SCALE = int(os.environ.get("TIDELOG_FUZZ_SCALE", "1"))
SECONDS_MAX = 100 * SCALE
RUN = Path(__file__).with_name("fuzz_run.py")

POOL_KIB_MAX = 8 << 10
"""Arrow's memory at its peak: batches of a run may decode to 1 MiB, the rest is the oracle's."""

RESIDENT_MIB_MAX = 400


def run(mode: str, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """The counts of one mode, shown even when the test passes."""
    done = subprocess.run(
        [sys.executable, str(RUN), mode, str(SCALE)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{mode} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    counts: dict[str, int] = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\nfuzz {mode}: {counts}")  # noqa: T201
    assert counts["resident peak MiB"] < RESIDENT_MIB_MAX
    return counts


pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX + 20)]


def test_every_truncation_is_refused_with_a_typed_error(capsys: pytest.CaptureFixture[str]) -> None:
    counts = run("truncate", capsys)

    assert counts["cases"] > 30_000
    assert counts["refused CORRUPT_BATCH"] == counts["cases"]
    assert counts["decoder refused"] == counts["decoded unchecked"]
    assert counts["arrow peak KiB"] < POOL_KIB_MAX


def test_every_flipped_bit_is_refused_by_crc_or_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    counts = run("flip_alone", capsys)

    assert counts["cases"] > 100_000
    assert counts["refused CORRUPT_BATCH"] + counts["refused UNSUPPORTED_VERSION"] == counts["cases"]


@pytest.mark.parametrize(
    ("mode", "cases_min"),
    [
        pytest.param("flip_sealed", 50_000, marks=pytest.mark.long),
        pytest.param("words", 25_000, marks=pytest.mark.long),
        pytest.param("shuffle_parts", 4_000, marks=pytest.mark.long),
        ("noise", 8_000),
    ],
)
def test_damage_under_a_right_crc_is_refused_or_read_alike_by_every_reader(
    mode: str, cases_min: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = run(mode, capsys)

    assert counts["cases"] >= cases_min * (SCALE if mode in ("noise", "shuffle_parts") else 1)
    assert counts["accepted"] > 0
    assert counts["refused CORRUPT_BATCH"] > counts["accepted"]
    assert counts["arrow peak KiB"] < POOL_KIB_MAX


def test_the_oracle_catches_a_validator_that_believes_null_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = Forgery.of(sample_batch())
    hidden = forged.with_buffer(len(forged.buffers) - 2, b"\x05").batch()
    fuzz_run.check(hidden, "hidden null")

    monkeypatch.setattr(validation, "_check_validity", lambda *_: None)

    with pytest.raises(AssertionError):
        fuzz_run.check(hidden, "hidden null")


def test_the_oracle_catches_a_validator_that_ignores_the_row_count(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = reseal(sample_batch(), record_count=2, last_offset_delta=1)
    fuzz_run.check(twice, "wrong count")

    monkeypatch.setattr(validation, "_check_message", lambda *_: None)

    with pytest.raises(AssertionError):
        fuzz_run.check(twice, "wrong count")


def test_the_decoder_alone_answers_damage_with_columns_or_a_typed_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts = run("decoder_alone", capsys)

    assert counts["decoded unchecked"] > 50_000
    assert counts["decoder refused"] > 0


def test_bombs_are_refused_before_anything_is_decompressed(capsys: pytest.CaptureFixture[str]) -> None:
    counts = run("bombs", capsys)

    assert counts["cases"] > 300
    assert counts["refused BATCH_TOO_LARGE"] > 100
    assert "accepted" not in counts
    assert counts["arrow peak KiB"] < POOL_KIB_MAX
