"""The table of behaviour has each option of docs/spark.md, and docs/spark.md has each option of the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.documents import text_of
from spark.behaviour.case import Good, Table
from spark.behaviour.failures import FAILURES
from spark.behaviour.reads import READS
from spark.behaviour.typed_values import TYPED_VALUES
from spark.behaviour.writes import WRITES
from tidelog_spark import options, sink_options
from tidelog_spark.servers import SERVERS

HEADS = {"| option | for | default | meaning |": {**READS, **TYPED_VALUES}, "| option of a write |": WRITES}
"""The head of each table of options in the document, and the table of its cases."""


def documented(head: str) -> list[str]:
    """The options of a table of docs/spark.md."""
    _, _, rest = text_of("docs/spark.md").partition(head)
    table, _, _ = rest.partition("\n\n")
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def test_a_documented_option_has_a_case_and_an_option_with_a_case_is_documented() -> None:
    for head, table in HEADS.items():
        assert sorted(documented(head)) == sorted(table)


def test_the_code_takes_the_documented_options() -> None:
    reads, writes = HEADS
    assert sorted(options.NAMES) == sorted(documented(reads))
    assert sorted(sink_options.NAMES) == sorted(documented(writes))


@pytest.mark.parametrize("table", HEADS.values(), ids=["reads", "writes"])
def test_each_option_has_a_good_value_and_a_bad_value(table: Table) -> None:
    assert [option for option, case in table.items() if not case.good or not case.bad] == []


@pytest.mark.parametrize("table", HEADS.values(), ids=["reads", "writes"])
def test_the_options_of_a_case_name_the_option(table: Table) -> None:
    """Otherwise a case would stand in the wrong place. A read without options shows the defaults."""
    for option, case in table.items():
        bad = [one.options for one in case.bad if option not in one.options and option not in one.sentence]
        assert bad == [], option
        shown = [one for one in case.good if option in one.options or option in ("stream", SERVERS)]
        assert shown, option


def test_a_bad_value_has_one_line_that_names_what_is_wrong() -> None:
    for table in HEADS.values():
        for case in table.values():
            assert [one.sentence for one in case.bad if "\n" in one.sentence] == []


def test_what_a_case_leaves_to_another_test_exists() -> None:
    left = [case.elsewhere for table in HEADS.values() for case in table.values() if case.elsewhere]
    assert [place for place in left if not _exists(place)] == []


def test_each_failure_has_tests() -> None:
    assert [place for places in FAILURES.values() for place in places if not _exists(place)] == []
    assert all(FAILURES.values())


def _exists(place: str) -> bool:
    file, _, name = place.partition("::")
    return f"def {name}(" in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


def test_batch_options_are_read_in_batches_and_streaming_options_in_streams() -> None:
    """As the column `for` of the document says; an option for both has a batch read at least."""
    row = re.compile(r"^\| `([^`]+)` \| (both|batch|streaming) \|", re.MULTILINE)
    kinds = dict(row.findall(text_of("docs/spark.md")))
    for option, case in {**READS, **TYPED_VALUES}.items():
        found = {one.batches is not None for one in case.good if isinstance(one, Good)}
        assert (kinds[option] != "streaming") == (False in found), option
