"""How `make docs` builds the site: Sphinx, with MyST for the Markdown files and autodoc for the reference.

The source folder is the repository itself, so that a page has the same path on the site as in the
repository and a link works in both. docs/decisions/0011-the-site-is-built-by-sphinx.md has the reasons.
"""

import builtins
import re
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("proto", "client", "spark-jobs")]

project = "Tidelog"
author = "The Tidelog authors"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "examples/**.md"]
exclude_patterns = [".*", "**/node_modules"]

myst_heading_anchors = 4
"""Deepest heading that a link can point to."""

default_role = "code"
"""Of a word in single backticks, as the docstrings have it."""
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}
autodoc_class_signature = "separated"
"""Applications get their objects from calls such as `connect`; constructors are not public."""
autodoc_preserve_defaults = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Tidelog {version}"
html_additional_pages = {"index": "to-the-start-page.html"}
html_show_sourcelink = False
html_copy_source = False
templates_path = ["_templates"]
html_theme_options = {"navigation_with_keys": True}
highlight_language = "none"
"""Of code without a language: pictures and output, in which nothing is a keyword."""


def name_folders_instead_of_linking_them(app: Sphinx, page: str, source: list[str]) -> None:
    """A link to a folder of the repository, which has no page on the site, becomes the folder's name."""
    here = (ROOT / page).parent

    def name(link: re.Match[str]) -> str:
        return f"{link[1]} (`{link[2]}`)" if (here / link[2]).is_dir() else link[0]

    source[0] = re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)\)", name, source[0])


def drop_generated_docstrings(
    app: Sphinx, what: str, name: str, described: object, options: object, lines: list[str]
) -> None:
    """Drops what Python writes itself: the number of a named tuple's field, and the manual of `int`."""
    if what == "data" and lines[:1] == (int.__doc__ or "").splitlines()[:1]:
        lines.clear()
    lines[:] = [line for line in lines if not re.match(r"Alias for field number \d+$", line)]


def leave_builtins_unlinked(app: Sphinx, page: nodes.document) -> None:
    """`bytes` in a signature is Python's type, not an attribute of that name such as `Retention.bytes`."""
    for reference in list(page.findall(pending_xref)):
        if reference["reftarget"] in vars(builtins):
            reference.replace_self(reference.children)


def setup(app: Sphinx) -> None:
    app.connect("source-read", name_folders_instead_of_linking_them)
    app.connect("autodoc-process-docstring", drop_generated_docstrings)
    app.connect("doctree-read", leave_builtins_unlinked)
