"""Tests of the repository itself: commands of developers, documents, names and shapes of the sources.

The other folders of `tests/` test the product, by subject.
"""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top folder of the repository."""
    return Path(__file__).parents[2]
