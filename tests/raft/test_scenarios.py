"""The transcripts in tests/scenarios/raft hold; `pytest tests/raft --rewrite-scenarios` writes them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from raft.scenario import run

FOLDER = Path(__file__).parents[1] / "scenarios" / "raft"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_transcript_is_what_happens(path: Path, rewrite_scenarios: bool) -> None:
    text = path.read_text(encoding="utf-8")

    told = run(text)

    if rewrite_scenarios:
        path.write_text(told, encoding="utf-8")
    else:
        assert told.splitlines() == text.splitlines()


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 12
