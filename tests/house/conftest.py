"""The tests of the house: of what a developer types, and of what the documents promise.

What the product does is tested beside this folder, by subject.
"""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top folder of the repository."""
    return Path(__file__).parents[2]
