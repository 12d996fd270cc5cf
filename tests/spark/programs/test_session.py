"""A session of its own in a process of its own, as in a user's script."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SCRIPT = """
from tidelog_spark import local_session

with local_session() as spark:
    spark.read.format("tidelog").option("subscribe", "orders").option("startingOffsets", "first").load()
"""
SECONDS_MAX = 240


def test_an_error_that_leaves_the_session_shows_its_sentence() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )

    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("startingOffsets is 'first'"), ended.stderr[-2000:]
