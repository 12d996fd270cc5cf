"""docs/testing.md: its examples run, and it describes every control of the cluster in memory."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tidelog.testing import FakeCluster

DOCUMENT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES: list[str] = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["asyncio", "blocking"])
def test_the_examples_run(example: str) -> None:
    exec(compile(example, "docs/testing.md", "exec"), {"__name__": "__main__"})


def test_every_control_of_the_cluster_is_described() -> None:
    public = {name for name, _ in inspect.getmembers(FakeCluster, inspect.isfunction) if name[0] != "_"}
    described = set(re.findall(r"[`\s,]([a-z_]+)\(", DOCUMENT))
    assert public - {"connect", "forgive"} <= described
