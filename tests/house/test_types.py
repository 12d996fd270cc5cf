"""mypy checks the types of the tests, too."""

import tomllib
from pathlib import Path

BY_MODULE = {"bench", "chaos", "nats", "operator", "simulator"}
"""Folders that have the name of a package: mypy finds their modules only one by one."""


def test_mypy_checks_every_module_of_the_tests(repository: Path) -> None:
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    tests = repository / "tests"
    unchecked = []
    for path in sorted(tests.rglob("*.py")):
        folder, *rest = path.relative_to(tests).with_suffix("").parts
        if not rest:
            continue
        by_folder = folder not in BY_MODULE and folder in settings["packages"]
        if not by_folder and ".".join((folder, *rest)) not in settings["modules"]:
            unchecked.append(str(path.relative_to(repository)))

    assert unchecked == []
