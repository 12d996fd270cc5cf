"""The end of a broker that gets SIGTERM: which ends are noted as failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import chaos.cluster
from chaos.cluster import Cluster, hang_up
from support.waiting import until
from tidelog.cli.local.processes import Child

STARTED = "open(sys.argv[2] + '.runs', 'w').close()"
"""The second argument is the file with the settings."""
SLEEPS = "time.sleep(60)"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (f"{STARTED}; {SLEEPS}", []),
        (
            f"print('opening', file=sys.stderr, flush=True); {STARTED}; {SLEEPS}",
            ["Broker 0 got SIGTERM and was killed (SIGTERM)"],
        ),
        (
            f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); {STARTED}; {SLEEPS}",
            [],
        ),
        (
            f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); {STARTED}; {SLEEPS}",
            ["Broker 0 got SIGTERM and ended with code 3"],
        ),
    ],
    ids=["not begun", "begun", "in good order", "with an error"],
)
async def test_an_end_after_sigterm_that_is_not_clean_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: list[str]
) -> None:
    stand_in = [sys.executable, "-c", f"import signal, sys, time; {script}"]
    monkeypatch.setattr(chaos.cluster, "python_module", lambda *words: [*stand_in, *words[1:]])
    (tmp_path / "broker-0.log").write_text("of a run before\n")
    cluster = Cluster(tmp_path, 1, begin=1)
    try:
        await cluster.launch(0)
        await until((tmp_path / "broker-0.yaml.runs").exists, "the process runs")
        await cluster.stop(0)
    finally:
        await cluster.close()

    assert [sentence.partition(": ")[0] for sentence in cluster.ended] == found


def test_a_pipe_to_a_broker_that_ended_is_closed_without_an_error(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, bufsize=4096)
    process.wait()
    assert process.stdin is not None
    process.stdin.write(b"slow 0.1\n")

    hang_up(Child("broker 0", process, tmp_path / "broker-0.log"))

    assert process.stdin.closed
