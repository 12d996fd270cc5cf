"""What people are told of settings: of wrong values, and of defaults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic_core import ErrorDetails, PydanticUndefined

from tidelog_broker.config.settings import BROKER_ID_MAX, Settings
from tidelog_broker.errors import BrokerError

SHOWN_CHARACTERS_MAX = 100
"""A message shows at most so many characters of a wrong value."""


class SettingsInvalid(BrokerError):
    """Settings that cannot be used; each problem is a sentence."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


def parse_broker_id(text: str) -> int:
    """The id of a broker from its text. Raises `SettingsInvalid`."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= BROKER_ID_MAX):
        raise SettingsInvalid([_wrong("broker_id", text)])
    return int(text)


def sentence(problem: ErrorDetails) -> str:
    """A problem that pydantic found, as a sentence: the setting, its value, and what to write."""
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{name} is missing; give --{name.replace('_', '-')}"
    if problem["type"] == "extra_forbidden":
        return unknown_setting(name)
    if problem["type"] == "value_error":
        # The checks wrote the whole sentence.
        return f"{name}: {problem['ctx']['error']}"
    return _wrong(name, problem["input"])


def unknown_setting(name: object) -> str:
    return f"there is no setting {shortened(name)}; `tidelog-broker run --help` lists them"


def _wrong(name: str, value: object) -> str:
    # The addresses of NATS servers may hold credentials.
    shown = "is of the wrong kind" if name == "nats" else f"is {shortened(value)}"
    return f"{name} {shown}; write {_right(name)}"


def _right(name: str) -> str:
    field = Settings.model_fields[name]
    if get_origin(field.annotation) is Literal:
        *others, last = get_args(field.annotation)
        return f"{', '.join(others)} or {last}"
    if field.annotation is bool:
        return "true or false"
    if field.annotation is str:
        return "text"
    if field.annotation is Path:
        return "the path of a folder"
    if field.annotation == list[str]:
        return "a list of addresses, each as name=host:port"
    low = next(bound.ge for bound in field.metadata if isinstance(bound, Ge))
    high = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
    return f"a whole number from {low} to {high}" if high is not None else f"a whole number, at least {low}"


def default_text(name: str) -> str | None:
    """The default of a setting as `--help` shows it; empty: nothing. None: it has no default."""
    default = Settings.model_fields[name].default
    if default is PydanticUndefined:
        return None
    if isinstance(default, list):
        return ", ".join(default)
    return "" if default is None else json.dumps(default) if isinstance(default, bool) else str(default)


def shortened(value: object) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"
