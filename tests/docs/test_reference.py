"""docs/reference describes every public name of the Python packages, and what it says of errors is so."""

from __future__ import annotations

import importlib
import re

import pytest

import tidelog_spark
from docs.documents import text_of
from tidelog import errors

PAGES = {
    "tidelog": ["tidelog", "model", "errors"],
    "tidelog.blocking": ["blocking"],
    "tidelog.model": ["model"],
    "tidelog.records": ["records"],
    "tidelog.testing": ["testing"],
}
"""Each public module, and the pages of docs/reference that describe its names."""

DIRECTIVE = re.compile(r"^\.\. auto(?:class|function|data):: (?:[\w.]+\.)?(\w+)$", re.MULTILINE)


def described(pages: list[str]) -> set[str]:
    return {name for page in pages for name in DIRECTIVE.findall(text_of(f"docs/reference/{page}.md"))}


def error_classes() -> list[type[errors.TidelogError]]:
    """The public errors below `TidelogError`, in the order of their module."""
    members = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in members if issubclass(each, errors.TidelogError)][1:]


@pytest.mark.parametrize("module", PAGES)
def test_every_public_name_of_a_module_is_described(module: str) -> None:
    public = set(importlib.import_module(module).__all__)

    assert public - described(PAGES[module]) == set()


def test_every_public_name_of_the_spark_package_is_described() -> None:
    assert set(tidelog_spark.__all__) - described(["spark"]) == set()


def test_every_error_is_described() -> None:
    assert {each.__name__ for each in error_classes()} - described(["errors"]) == set()


def test_the_table_of_errors_is_that_of_the_code() -> None:
    rows = [
        f"| `{each.__name__}` | `{each.code}` | {'yes' if each.retriable else 'no'} | "
        f"{'yes' if each.definite else 'no'} |"
        for each in error_classes()
    ]
    table = [line for line in text_of("docs/reference/errors.md").splitlines() if line.startswith("| `")]

    assert table == rows
