"""Every command in a code block of a document is run by a test, or stands here with the reason why not."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from docs.documents import ROOT, all_documents, blocks

SHELLS = {"bash", "console", "sh", "shell"}
PROGRAMS = {
    "curl", "docker", "helm", "kubectl", "make", "node", "npm", "pip", "python", "tidelog", "tidelog-broker",
    "tidelog-operator",
}  # fmt: skip
"""In a block without a language, a line that begins with one of these is a command."""

CLUSTER = "it needs a Kubernetes cluster; the tests in e2e/ take the same steps"
MINUTES = "it takes minutes or hours, and is run by hand"


class Covered(NamedTuple):
    """Commands that a test runs."""

    document: str
    """A regular expression, as `command`."""
    command: str
    test: str
    """The file that runs them, or calls what they call."""


class NotRun(NamedTuple):
    """Commands that no test runs."""

    document: str
    command: str
    why: str


ENTRIES: list[Covered | NotRun] = [
    Covered(".*", r"make demo", "tests/cli/test_demo.py"),
    Covered(".*", r"tidelog dev( --brokers 3)?", "tests/cli/test_dev.py"),
    Covered("docs/getting-started.md", r".*\btidelog .*", "tests/docs/test_getting_started.py"),
    Covered("docs/cli.md", r".*\btidelog .*", "tests/cli/test_every_command.py"),
    Covered("docs/operations.md", r"tidelog (acl|token|quota) .*", "tests/cli/test_access.py"),
    Covered("docs/operations.md", r"tidelog-broker .*", "tests/broker/test_command.py"),
    Covered("docs/operations.md", r"tidelog verify --cluster .*", "tests/cli/test_verify_cluster.py"),
    Covered("docs/operations.md", r"tidelog verify /.*", "tests/cli/test_verify.py"),
    Covered(
        "docs/spark.md",
        r"python -m tidelog_spark\.jobs ingest .*",
        "tests/spark/programs/test_restart.py",
    ),
    Covered(
        "docs/spark.md",
        r"python -m tidelog_spark\.jobs aggregate .*",
        "tests/spark/programs/test_aggregate_restart.py",
    ),
    Covered("docs/chaos.md", r".*cluster\.power_losses .*", "tests/cluster/test_power_losses.py"),
    Covered("docs/chaos.md", r"tidelog verify --history .*", "tests/cli/test_verify_cluster.py"),
    Covered("examples/.*", r"npm install|node .*", "tests/examples/test_node_client.py"),
    NotRun(".*", r"make (test|check|docs)", "continuous integration runs it (.ci/run)"),
    NotRun("docs/benchmarks.md", r"make bench.*|python -m bench\..*", MINUTES),
    NotRun(
        "docs/chaos.md",
        r"make chaos.*|python -m chaos(\.spark(\.reshuffle)?)? .*",
        MINUTES + "; tests/chaos tests its parts",
    ),
    NotRun(
        "docs/spark.md", r"pip install .*", "it installs packages; tools/setup.sh installs the same extras"
    ),
    NotRun(
        "docs/kubernetes.md", r"make images .*|docker push .*", "it needs a registry; e2e/ builds the images"
    ),
    NotRun("docs/(kubernetes|runbook).md", r"(helm|kubectl|curl) .*", CLUSTER),
    NotRun("docs/kubernetes.md", r"tidelog consume .* --server .*", CLUSTER),
]


class Command(NamedTuple):
    document: str
    line: str
    """Without prompt, variables, comment and the folder of the program."""


def commands(document: str) -> list[Command]:
    found = []
    for block in blocks(document):
        if block.language not in {*SHELLS, ""}:
            continue
        has_prompts = re.search(r"^[ \t]*\$ ", block.text, re.MULTILINE) is not None
        for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
            prompt, line = line.strip().startswith("$ "), line.strip().removeprefix("$ ")
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            line = re.sub(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?", "", line)
            known = line.partition(" ")[0] in PROGRAMS and " " in line
            if line and (prompt or (not has_prompts and (known or block.language in SHELLS))):
                found.append(Command(document, line))
    return found


def covers(entry: Covered | NotRun, command: Command) -> bool:
    return bool(re.fullmatch(entry.document, command.document) and re.fullmatch(entry.command, command.line))


ALL = [command for document in all_documents() for command in commands(document)]


def test_every_command_is_run_by_a_test_or_has_a_reason() -> None:
    assert len(ALL) > 80
    assert [command for command in ALL if not any(covers(entry, command) for entry in ENTRIES)] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.document} {entry.command}")
def test_every_entry_has_a_command(entry: Covered | NotRun) -> None:
    assert any(covers(entry, command) for command in ALL)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if isinstance(entry, Covered)], ids=str)
def test_the_test_that_is_named_exists(entry: Covered) -> None:
    assert (ROOT / entry.test).is_file()
