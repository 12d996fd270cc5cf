"""The documents of this repository and their code blocks: what the tests of this folder read and run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    """Empty: none is given."""
    mark: str
    """A word behind the language; it says how a test must run the block."""
    text: str


_FENCE = re.compile(r"^[ \t]*```(?P<info>[^\n`]*)\n(?P<text>.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)


def text_of(document: str) -> str:
    """The text of a document, by its path from the top folder."""
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> list[Block]:
    """The code blocks of a document, in their order."""
    found = []
    for fence in _FENCE.finditer(text_of(document)):
        language, _, mark = fence["info"].strip().partition(" ")
        found.append(Block(language, mark, fence["text"]))
    return found


def all_documents() -> list[str]:
    """Every Markdown file, except decision records: they describe the day on which they were written."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    names = sorted(str(path.relative_to(ROOT)) for path in files)
    return [name for name in names if not name.startswith("docs/decisions/")]
