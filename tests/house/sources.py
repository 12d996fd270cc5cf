"""The Python sources of the repository as modules: their names, syntax trees, docstrings and imports.

The tests of this folder that check names and shapes read the sources here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = {
    "tidelog_proto": "proto",
    "tidelog": "client",
    "tidelog_broker": "broker",
    "tidelog_operator": "operator",
    "tidelog_spark": "spark-jobs",
    "bench": ".",
    "simulator": ".",
    "chaos": ".",
    "e2e": ".",
}
"""Each package, and the folder that holds it."""

_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]+)\1(?!`)")


@dataclass(frozen=True)
class Module:
    """One file of Python, and its place in the tree of packages."""

    name: str
    """With dots, from its package on; the name of a package is that of its `__init__.py`."""
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        """The package that relative names in this module begin with: itself if it is a package."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def lines(self) -> int:
        return len(self.path.read_text(encoding="utf-8").splitlines())

    def strings(self) -> Iterator[str]:
        """All docstrings: of the module, its classes and functions, and those under a field."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text

    @cached_property
    def names(self) -> set[str]:
        """Every name that the module defines, imports or uses."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    found.add(node.name)
                case ast.Name():
                    found.add(node.id)
                case ast.Attribute():
                    found.add(node.attr)
                case ast.alias():
                    found.add((node.asname or node.name).rpartition(".")[2])
        return found


@cache
def modules() -> Mapping[str, Module]:
    """All modules by name, except the generated modules of `proto/`."""
    found: dict[str, Module] = {}
    for package, folder in SOURCE_ROOTS.items():
        for path in sorted((ROOT / folder / package).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if "_pb2" not in name:
                found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
    return found


def children(package: str) -> set[str]:
    """The modules and packages directly in a package, without its name in front."""
    prefix = package + "."
    return {
        name[len(prefix) :]
        for name in modules()
        if name.startswith(prefix) and "." not in name[len(prefix) :]
    }


def spans(text: str) -> list[str]:
    """What stands in single or double backticks."""
    return [content for _, content in _SPAN.findall(text)]
