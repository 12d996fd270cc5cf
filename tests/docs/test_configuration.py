"""docs/configuration.md lists the fields of the settings object: name, default and sentence."""

from __future__ import annotations

from pathlib import Path

from tidelog_broker.config.sentences import default_text
from tidelog_broker.config.settings import Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def settings_table() -> str:
    """The table of settings that the document must have."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = default_text(name)
        shown = "required" if default is None else default or "–"
        rows.append(f"| `{name}` | {shown} | {field.description} |")
    return "\n".join(rows)


def test_the_document_lists_every_setting_with_its_default_and_sentence() -> None:
    assert settings_table() in DOCUMENT.read_text(), f"docs/configuration.md must hold:\n{settings_table()}"


def test_every_setting_has_a_sentence() -> None:
    assert all(field.description for field in Settings.model_fields.values())
