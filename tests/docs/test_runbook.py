"""docs/runbook.md has every condition, event and phase of the operator, and its quotes are real messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tidelog_operator.plan.streams import Reason
from tidelog_operator.reporting.events import STUCK

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "operator" / "tidelog_operator"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")

PASSED_ON = {"finding.reason", "decision.problem.reason", "reason", "last['reason']"}
"""Arguments of `condition` that are no literals: a member of `Reason`, a tuple whose literals are counted
separately, or the reason of an earlier condition."""

OF_KUBERNETES = {"Running", "Pending", "Terminating", "CrashLoopBackOff"}
"""States of pods that have entries too."""

CAMEL_CASE = re.compile(r"[A-Z][a-z]+([A-Z][a-z]+)*")


def calls(text: str, function: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            yield node


BROKER = ROOT / "broker" / "tidelog_broker"
OF_BROKERS = ("\n## A broker does not start on its volume\n", "\n## No controller\n")
"""These sections quote brokers. All other sections quote the operator."""


def sources(package: Path = OPERATOR) -> dict[str, str]:
    return {str(path.relative_to(package)): path.read_text("utf-8") for path in package.rglob("*.py")}


def reasons_of_conditions(text: str) -> set[str]:
    """The reasons in a module. Raises `AssertionError` for a reason that cannot be read from the source."""
    found = set()
    for call in calls(text, "condition"):
        reason = call.args[2]
        if isinstance(reason, ast.Constant):
            found.add(str(reason.value))
        else:
            assert ast.unparse(reason) in PASSED_ON, f"line {call.lineno}: {ast.unparse(call)}"
    for node in ast.walk(ast.parse(text)):
        # `reason, message = … if … else ("CannotChange", error)`
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("(reason,"):
            words = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
            found |= {word for word in words if isinstance(word, str)}
    return found


def reasons_of_events(text: str) -> set[str]:
    firsts = (call.args[0] for call in calls(text, "Event") if call.args)
    return {str(one.value) for one in firsts if isinstance(one, ast.Constant)}


def texts(text: str) -> list[str]:
    """Every string of a module. A NUL stands for each value that is filled in."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = (str(each.value) if isinstance(each, ast.Constant) else "\0" for each in node.values)
            found.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def entries(document: str) -> set[str]:
    """Reasons with a heading of their own or in the first column of a table."""
    lines = [line for line in document.splitlines() if line.startswith(("### ", "| "))]
    firsts = (line[4:] if line.startswith("#") else line.split("|")[1] for line in lines)
    return {name for first in firsts for name in re.findall(r"`(\w+)`", first)}


def quotes(document: str) -> list[str]:
    """The text in quotation marks outside code blocks."""
    prose = re.sub(r"^ *```.*?^ *```", "", document, flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+", " ", one) for one in re.findall(r'"([^"]+)"', prose)]


def is_said(quote: str, said: list[str]) -> bool:
    """Whether a string holds the parts of the quote in their order; `…` stands between the parts."""
    pattern = ".*".join(re.escape(part.strip()) for part in quote.split("…"))
    return any(re.search(pattern, one, re.DOTALL) for one in said)


def section(begin: str, end: str) -> str:
    """The part of the runbook between two headings."""
    assert RUNBOOK.count(begin) == RUNBOOK.count(end) == 1
    return RUNBOOK.partition(begin)[2].partition(end)[0]


@pytest.mark.parametrize(
    ("module", "more", "begin", "end"),
    [
        ("reporting/cluster_status.py", set(), "\n## Clusters: Ready\n", "\n## Streams\n"),
        ("reporting/stream_status.py", set(Reason), "\n## Streams\n", "\n## Ingestions\n"),
    ],
)
def test_every_reason_of_a_condition_has_an_entry_in_the_section_of_its_object(
    module: str, more: set[str], begin: str, end: str
) -> None:
    said = sources()
    known = (
        reasons_of_conditions(said[module]) | reasons_of_conditions(said["reporting/conditions.py"]) | more
    )

    assert len(known) > 7
    assert known - entries(section(begin, end)) == set()


def test_every_reason_of_an_ingestion_has_an_entry() -> None:
    said = sources()
    plan = said["plan/ingestions.py"], said["resources/path_claims.py"]
    asked = ((text, name, at) for text in plan for name, at in (("Problem", 0), ("PathClaim", 1)))
    reasons = (call.args[at] for text, name, at in asked for call in calls(text, name))
    problems = {str(one.value) for one in reasons if isinstance(one, ast.Constant)}

    known = reasons_of_conditions(said["reporting/ingestion_status.py"]) | problems

    assert {"Scheduled", "StreamNotFound", "SinkInUse"} <= known
    assert known - entries(section("\n## Ingestions\n", "\n## Phases\n")) - {"Valid"} == set()


def test_no_other_module_makes_conditions() -> None:
    found = {name for name, text in sources().items() if any(calls(text, "condition"))}

    statuses = {f"reporting/{kind}_status.py" for kind in ("cluster", "stream", "ingestion")}
    assert found == {*statuses, "reporting/conditions.py"}


def test_every_reason_of_an_event_has_an_entry() -> None:
    known = {reason for text in sources().values() for reason in reasons_of_events(text)}

    assert "Failed" in known
    assert {*known, *STUCK} - entries(section("\n## Events\n", "\n## Rejected by the API server\n")) == set()


def test_every_phase_is_named() -> None:
    named = section("\n## Phases\n", "\n## Events\n")
    for kind in ("cluster", "stream"):
        definition = yaml.safe_load((ROOT / "crds" / f"{kind}.yaml").read_text("utf-8"))
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        words = schema["properties"]["status"]["properties"]["phase"]["description"].partition(":")[2]

        phases = set(re.findall(r"[A-Z][a-z]+", words))

        assert len(phases) > 5
        assert {one for one in phases if f"`{one}`" not in named} == set()


def test_every_entry_is_a_reason_of_the_operator() -> None:
    known = {word for text in sources().values() for one in texts(text) for word in re.findall(r"\w+", one)}

    assert {one for one in entries(RUNBOOK) if CAMEL_CASE.fullmatch(one)} - known - OF_KUBERNETES == set()


def test_quotes_are_messages_of_the_operator() -> None:
    said = [one for text in sources().values() for one in texts(text)]
    found = quotes(RUNBOOK.replace(section(*OF_BROKERS), ""))

    assert len(found) > 15
    assert [one for one in found if not is_said(one, said)] == []


def test_quotes_of_brokers_are_messages_of_brokers() -> None:
    said = [one for text in sources(BROKER).values() for one in texts(text)]
    found = quotes(section(*OF_BROKERS))

    assert len(found) > 8
    assert [one for one in found if not is_said(one, said)] == []


@pytest.mark.parametrize(
    "text",
    [
        'condition("Ready", False, "Unheard", "so it is")',
        'reason, why = known if known else ("Unheard", error)\ncondition("Ready", False, reason, why)',
    ],
)
def test_a_new_reason_is_found(text: str) -> None:
    assert reasons_of_conditions(text) == {"Unheard"}
    assert "Unheard" not in entries(RUNBOOK)


def test_a_reason_that_cannot_be_read_from_the_source_is_refused() -> None:
    with pytest.raises(AssertionError, match="line 1"):
        reasons_of_conditions('condition("Ready", False, chosen(), "so it is")')


def test_a_quote_may_leave_out_filled_in_values() -> None:
    said = texts('f"there is no Cluster {name!r} in this namespace"')

    assert is_said("there is no Cluster … in this namespace", said)
    assert not is_said("there is no Cluster … in that namespace", said)
