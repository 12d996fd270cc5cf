"""constraints.txt pins every requirement of pyproject.toml, and names no package index."""

import re
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def pins(repository: Path) -> dict[str, str]:
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in pinned}


def test_every_line_is_a_comment_or_a_pin(repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+( ; .+)?", line)] == []


def test_every_requirement_is_pinned_at_a_version_that_it_allows(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"], *chain(*extras)]
    requirements = [Requirement(text) for text in asked if not text.startswith("tidelog[")]
    pinned = pins(repository)

    not_pinned = [
        str(requirement)
        for requirement in requirements
        if not requirement.specifier.contains(pinned.get(canonicalize_name(requirement.name), ""))
    ]

    assert not_pinned == []
