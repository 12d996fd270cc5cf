"""Every rule and every section of the design that is cited exists in docs/design.md.

Cited are labels (*R8*, *M2a*) and sections (*DESIGN 4.3*, *DESIGN section 12*), in code, tests, documents
and charts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")

SUFFIXES = {".md", ".proto", ".py", ".toml", ".txt", ".yaml", ".yml"}
SKIPPED = {".git", ".venv", ".build", "__pycache__", "vectors", "third_party"}

LABEL = re.compile(r"(?<![\w./#%:-])[RFMNKS]\d{1,2}a?(?![\w.]*[\w])")
SECTION = re.compile(r"DESIGN(?:\.md)?,? (?:section )?(\d+(?:\.\d+[a-z]?)?)")


def cited(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """What `pattern` finds, with the file."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in files:
            path = Path(folder, name)
            if (
                path.suffix in SUFFIXES
                and not path.is_symlink()
                and not name.endswith(("_pb2.py", "_pb2.pyi"))
            ):
                for found in pattern.finditer(path.read_text(encoding="utf-8")):
                    yield found[found.re.groups], str(path.relative_to(ROOT))


def defined_sections() -> set[str]:
    """*4*, *4.3* and *4.2c*: headings, numbered points, and rules of a point."""
    found: set[str] = set()
    section = ""
    for line in DESIGN.splitlines():
        if heading := re.match(r"## (\d+)\. ", line):
            section = heading[1]
            found.add(section)
        elif point := re.match(r"(\d+)\. ", line):
            found.add(f"{section}.{point[1]}")
        elif rule := re.match(r" +- \*\*(\d[a-z])\*\* ", line):
            found.add(f"{section}.{rule[1]}")
    return found


def test_every_cited_rule_is_defined_in_the_design() -> None:
    defined = set(re.findall(r"^- \*\*([RFMNKS]\d+[a-z]?)\*\* ", DESIGN, re.MULTILINE))
    unknown = {(label, path) for label, path in cited(LABEL) if label not in defined}

    assert unknown == set()


def test_every_cited_section_exists_in_the_design() -> None:
    defined = defined_sections()
    unknown = {(section, path) for section, path in cited(SECTION) if section not in defined}

    assert unknown == set()


@pytest.mark.parametrize("label", ["R1", "R19", "M2a", "K2", "F7", "N5"])
def test_labels_are_found_in_prose(label: str) -> None:
    assert LABEL.findall(f"it counts ({label}), and see {label}: more") == [label, label]


@pytest.mark.parametrize("text", ["K8s", "N802", "R1.py", "log-R1", "s/R1", "SR1"])
def test_other_words_are_not_labels(text: str) -> None:
    assert LABEL.findall(text) == []
