"""Finds the paths, links and commands in a Markdown document, for comparison with the repository.

`test_documents.py` compares them. `test_markdown.py` tests this module.
"""

import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import PurePosixPath

_FENCE = re.compile(r"^[ \t]*```[ \t]*(?P<language>\w*)[^\n]*\n(?P<text>.*?)^[ \t]*```[ \t]*$", re.M | re.S)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SHELL = {"bash", "console", "sh", "shell"}
_PATH = re.compile(r"[\w.@-][\w.@*{},/-]*")
_SUFFIXES = {".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
_PLACEHOLDER = re.compile(r"NNNN|X{3,}|\.\.\.")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.S)
_OPTION = re.compile(r"--[a-z][a-z-]*")


def code_spans(text: str) -> list[str]:
    """The text in backticks inside the prose."""
    return _SPAN.findall(_FENCE.sub("", text))


def shell_lines(text: str) -> list[str]:
    """Lines of shell blocks: continued lines joined, prompts and comments removed."""
    lines = []
    for fence in _FENCE.finditer(text):
        if fence["language"] not in _SHELL:
            continue
        for line in re.sub(r"\\\n\s*", "", fence["text"]).splitlines():
            command = re.sub(r"(^|\s)#.*", "", line.strip().removeprefix("$ ")).strip()
            if command:
                lines.append(command)
    return lines


def links(text: str) -> list[str]:
    """Targets of links to files of this repository, without the anchor."""
    targets = (target.partition("#")[0] for target in _LINK.findall(_FENCE.sub("", text)))
    return [
        target for target in targets if target and "://" not in target and not target.startswith("mailto:")
    ]


def paths(text: str, top_level: set[str]) -> list[str]:
    """Files and folders named in backticks: `{a,b}` spelled out, `:line` and `::test` removed.

    A span is a path if it has a slash and either begins with an entry of the repository's top folder
    (`top_level`) or ends as our files do, or if it is the name of an entry of the top folder.
    """
    found: list[str] = []
    for span in code_spans(text):
        candidate = re.sub(r"(::\w+|:\d+(-\d+)?)$", "", span)
        if not _PATH.fullmatch(candidate) or _PLACEHOLDER.search(candidate):
            continue
        parts = PurePosixPath(candidate)
        named = "/" in candidate and (parts.parts[0] in top_level or _suffix_of(parts) in _SUFFIXES)
        if named or candidate in top_level:
            found += _spelled_out(candidate)
    return found


def commands(text: str, program: str) -> list[list[str]]:
    """Calls of `program` in shell blocks and in backticks, as lists of words after its name.

    `create|list` is spelled out into two calls. A call ends at the first placeholder: `…`, `<name>`,
    `[--json]`.
    """
    calls = []
    for line in [*shell_lines(text), *code_spans(text)]:
        for simple in re.split(r"\s*(?:&&|\|\||;|\s\||\s>|\s<|\s&$)\s*", line):
            words = _words(simple)
            while words and _ASSIGNMENT.fullmatch(words[0]):
                words.pop(0)
            if words and PurePosixPath(words[0]).name == program:
                calls += [list(call) for call in product(*_alternatives(words[1:]))]
    return calls


def long_options(words: list[str]) -> list[str]:
    """The `--options` among the words of a call, without their values."""
    return [match[0] for word in words if (match := _OPTION.match(word))]


def before_options(words: list[str]) -> list[str]:
    """The words of a call before its first option: subcommands, and perhaps arguments."""
    end = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    return words[:end]


def _suffix_of(path: PurePosixPath) -> str:
    return path.suffix.rstrip("}")


def _spelled_out(path: str) -> Iterator[str]:
    braces = _BRACES.search(path)
    if braces is None:
        yield path
        return
    for alternative in braces[1].split(","):
        yield from _spelled_out(path[: braces.start()] + alternative.strip() + path[braces.end() :])


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # prose with an apostrophe
        return command.split()


def _alternatives(words: list[str]) -> list[list[str]]:
    spelled: list[list[str]] = []
    for word in words:
        if re.match(r"[<\[…(]|\.\.\.", word):
            break
        spelled.append(word.split("|") if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", word) else [word])
    return spelled
