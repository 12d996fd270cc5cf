"""Reads the configuration of a job from a file and from ``KEY=VALUE`` arguments.

A fault in it is a `BadConfiguration` with one sentence for each fault, before Spark starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidelog.errors import InvalidRequest
from tidelog_spark.jobs.config import Reading

FILE_BYTES_MAX: Final = 1 << 20

Job = TypeVar("Job", bound=Reading)


class BadConfiguration(InvalidRequest):
    """The configuration has faults; a retry cannot mend them."""


def load(kind: type[Job], file: Path | None, settings: Sequence[str]) -> Job:
    """The job of this kind in a YAML or JSON file, with `settings` (``sink.parquet.path=/lake``) over it.

    Raises `BadConfiguration`.
    """
    document = _read(file) if file else {}
    for setting in settings:
        _set(document, setting)
    return from_document(kind, document)


def from_document(kind: type[Job], document: Mapping[str, Any]) -> Job:
    """The job of this kind in a document; raises `BadConfiguration` with a sentence for each fault."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        sentences = [_sentence(fault) for fault in error.errors()]
        raise BadConfiguration(". ".join(dict.fromkeys(sentences))) from None
    except InvalidRequest as error:
        raise BadConfiguration(error.message) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadConfiguration(f"the configuration file {file} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise BadConfiguration(f"the configuration file {file} is larger than {FILE_BYTES_MAX} bytes")
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise BadConfiguration(f"{file} is not a configuration: it must have keys such as servers and source")
    return document


def _set(document: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise BadConfiguration(f"{setting!r} is not KEY=VALUE, such as sink.parquet.path=/lake/orders")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadConfiguration(f"the value of {key} is not YAML: {text!r}") from None
    *parents, last = key.split(".")
    place = document
    for parent in parents:
        if not isinstance(place.setdefault(parent, {}), dict):
            raise BadConfiguration(f"{key} is below {parent}, which already has the value {place[parent]!r}")
        place = place[parent]
    place[last] = value


def _sentence(fault: ErrorDetails) -> str:
    where = _path(fault["loc"])
    reason = (fault.get("ctx") or {}).get("error")
    if isinstance(reason, (ValueError, InvalidRequest)):
        return f"{where}: {reason}" if where else str(reason)
    if fault["type"] == "missing":
        return f"{where} is missing"
    if fault["type"] == "extra_forbidden":
        return f"{where} is not a key of a job; check its spelling and its place"
    message = fault["msg"][:1].lower() + fault["msg"][1:]
    return f"{where} is {fault['input']!r}: {message}"


def _path(location: Sequence[str | int]) -> str:
    # Without the names that pydantic gives to the members of a union.
    unions = ("literal[", "datetime", "constrained")
    return ".".join(str(part) for part in location if not str(part).startswith(unions))
