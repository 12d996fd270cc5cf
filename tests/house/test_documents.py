"""Files, links, `make` targets, `tidelog` commands and options that the documents name exist.

Decision records are left out: they describe the day on which they were written.
"""

import fnmatch
import importlib
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from house import markdown

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    if path.relative_to(ROOT).parts[:2] != ("docs", "decisions")
)
NOT_OURS = {".git", ".venv", ".build", "__pycache__"}
TOP_LEVEL = {path.name for path in ROOT.iterdir()} - NOT_OURS


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def our_paths() -> list[str]:
    """Every file and every folder that holds a file, with a slash in front."""
    found = {Path("/")}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        for name in files:
            path = Path("/", Path(folder).relative_to(ROOT), name)
            found |= {path, *path.parents}
    return [str(path) for path in found]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_in_backticks_exists(document: str, our_paths: list[str]) -> None:
    missing = [
        path
        for path in markdown.paths(text_of(document), TOP_LEVEL)
        if not fnmatch.filter(our_paths, "*/" + path.rstrip("/"))
    ]

    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_to_a_file_names_an_existing_file(document: str) -> None:
    folder = (ROOT / document).parent

    assert [target for target in markdown.links(text_of(document)) if not (folder / target).exists()] == []


def test_the_architecture_links_each_file_of_code_once() -> None:
    targets = [link for link in markdown.links(text_of("ARCHITECTURE.md")) if not link.endswith(".md")]

    assert len(targets) > 100
    assert [target for target in set(targets) if targets.count(target) > 1] == []


def test_the_architecture_says_where_each_rule_of_the_design_lives() -> None:
    design = set(re.findall(r"\*\*([A-Z]\d+)\*\* (?!\*\(later)", text_of("docs/design.md")))
    table = text_of("ARCHITECTURE.md").partition("## Where the rules live")[2].partition("\n## ")[0]
    cells = ", ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))
    placed = set(re.findall(r"\b[A-Z]\d+\b", cells))
    for letter, first, last in re.findall(r"\b([A-Z])(\d+)–[A-Z](\d+)", cells):
        placed |= {f"{letter}{number}" for number in range(int(first), int(last))}

    assert len(design) > 30
    assert design - placed == set()


def make_targets() -> dict[str, str]:
    """Targets of the Makefile, each with its explanation in `make help` or an empty text."""
    rules = re.findall(r"^([a-z][\w-]*):(?!=)[^#\n]*(?:## (.*))?$", text_of("Makefile"), re.MULTILINE)
    return dict(rules)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_named_make_target_exists(document: str) -> None:
    words = [word for call in markdown.commands(text_of(document), "make") for word in call]
    named = {word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)}

    assert named - make_targets().keys() == set()


def test_make_help_explains_every_target() -> None:
    assert [target for target, explanation in make_targets().items() if not explanation] == []


def help_of(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of `tidelog WORDS --help`; empty if the command does not exist."""
    script = tomllib.loads(text_of("pyproject.toml"))["project"]["scripts"]["tidelog"]
    module, _, function = script.partition(":")
    monkeypatch.setattr(sys, "argv", ["tidelog", *words, "--help"])
    monkeypatch.setenv("COLUMNS", "250")
    try:
        getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        if end.code not in (0, None):
            return ""
    return capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_named_tidelog_command_and_option_exists(
    document: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for call in filter(None, markdown.commands(text_of(document), "tidelog")):
        help_text = help_of(markdown.before_options(call), monkeypatch, capsys)
        known = set(re.findall(r"--[a-z][a-z-]*", help_text))
        if not help_text or set(markdown.long_options(call)) - known - {"--help", "--version"}:
            wrong.append(" ".join(["tidelog", *call]))

    assert wrong == []
