"""A whole run with real processes: load, a fault, healing, the verdict, and no process or file left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.__main__ import main
from cli.test_dev import children_of_folder

COMMAND = [sys.executable, "-m", "chaos"]
RUN_SECONDS_MAX = 100


@pytest.mark.long
def test_a_short_run_is_clean_and_leaves_nothing(tmp_path: Path) -> None:
    data, verdict = tmp_path / "data", tmp_path / "verdict.json"
    data.mkdir()

    done = subprocess.run(
        [*COMMAND, "--minutes", "0.02", "--seed", "1", "--faults", "kill", "--dir", data, "--json", verdict],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(verdict.read_text())
    assert (found["clean"], found["anomalies"], found["sentences"]) == (True, {}, [])
    assert found["faults"]["kill"] >= 1
    assert found["records"]["content"] >= found["records"]["acknowledged"] > 0
    assert found["records_compared_on_all_replicas"] == found["records"]["content"]
    assert done.stdout.splitlines()[-1] == "result       no anomaly"
    assert list(data.iterdir()) == []
    assert not children_of_folder(data)


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [*COMMAND, "--faults", "kill", "--dir", tmp_path],
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert run.stdout is not None
        assert "start" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=RUN_SECONDS_MAX)
    finally:
        run.kill()
        run.communicate()

    assert run.returncode == 130
    assert not children_of_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--faults", "kill,melt"], ["--plant", "nothing"]])
def test_an_unknown_fault_or_bug_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "there is no" in capsys.readouterr().err


def test_clock_faults_without_libfaketime_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("chaos.__main__.find_faketime", lambda: None)

    assert main(["--faults", "kill,clock"]) == 2
    assert "apt install libfaketime" in capsys.readouterr().err
