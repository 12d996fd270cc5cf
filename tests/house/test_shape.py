"""The shape of the sources: no circles of imports, no long files, test names or commit subjects."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import grimp
import pytest

from house import sources

LINES_MAX = 400
TEST_NAME_MAX = 80
SUBJECT_MAX = 72
SUBJECTS_SINCE = "7eaec4e"
"""Commits up to this one have longer subjects."""


def circles(imports: Mapping[str, Sequence[str]]) -> list[set[str]]:
    """Groups of modules that import each other: the strongly connected components (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_modules: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        open_modules.append(module)
        for imported in imports[module]:
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in open_modules:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            start = open_modules.index(module)
            group = set(open_modules[start:])
            del open_modules[start:]
            if len(group) > 1:
                found.append(group)

    for module in imports:
        if module not in order:
            visit(module)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type checkers and inside functions count too."""
    graph = grimp.build_graph(*sources.SOURCE_ROOTS, cache_dir=None)
    imports = {name: sorted(graph.find_modules_directly_imported_by(name)) for name in sorted(graph.modules)}

    assert len(imports) > 500
    assert circles(imports) == []


def test_a_circle_is_found() -> None:
    imports = {"a": ["b", "d"], "b": ["c"], "c": ["a"], "d": [], "e": ["a", "f"], "f": ["e"]}

    assert circles(imports) == [{"a", "b", "c"}, {"e", "f"}]


def test_no_file_of_the_packages_is_longer_than_400_lines() -> None:
    long = {name for name, module in sources.modules().items() if module.lines > LINES_MAX}

    assert long == set()


def names_of_tests(path: Path) -> list[str]:
    return re.findall(r"^\s*(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_names_of_tests_have_at_most_80_characters() -> None:
    files = [*(sources.ROOT / "tests").rglob("*.py"), *(sources.ROOT / "e2e").rglob("*.py")]

    long = {name for path in files for name in names_of_tests(path) if len(name) > TEST_NAME_MAX}

    assert len(files) > 200
    assert long == set()


def git(*words: str) -> str | None:
    """The output of git in this repository; None if git, the history or the commit is missing."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=sources.ROOT, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def test_subjects_of_commits_have_at_most_72_characters() -> None:
    log = git("log", "--format=%s", "--no-merges", f"{SUBJECTS_SINCE}..HEAD")
    if log is None:
        pytest.skip("the history of git is not here")

    long = {subject for subject in log.splitlines() if len(subject) > SUBJECT_MAX}

    assert long == set()
