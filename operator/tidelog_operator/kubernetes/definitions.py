"""Applies the CustomResourceDefinitions of Tidelog from files.

Helm creates definitions when a chart is first installed, and never updates them. So before an upgrade the
chart runs this, with the files of the new version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
import yaml
from kubernetes.aio.config import ConfigException

from tidelog_operator.kubernetes.api import KUBE_FAILURES, Kube, reason_of
from tidelog_operator.model import Manifest

KIND: Final = "CustomResourceDefinition"

REVISION: Final = "tidelog.io/revision"
"""An annotation that increases with each change of a file. A definition from a newer release stays: an older
one would drop fields that objects already use."""

ESTABLISHED_SECONDS_MAX: Final = 30.0
ESTABLISHED_CHECK_SECONDS: Final = 0.2


log = structlog.get_logger(__name__)


class ApplyError(Exception):
    """A definition was not applied; the message says which one and why. Those before it are applied. After
    the cause is removed, the command can be run again."""


async def applied(folder: Path, kubeconfig: str = "") -> Sequence[str]:
    """Applies all definitions in `folder`, waits until the API server serves them, and returns their names.
    Raises `ApplyError`."""
    definitions = read(folder)
    try:
        async with Kube(kubeconfig) as kube:
            for one in definitions:
                await _apply(kube, one)
    except ConfigException as error:
        raise ApplyError(
            f"Cannot log in to the API server: {error}. Run this command in a pod, or set --kubeconfig."
        ) from error
    return [one["metadata"]["name"] for one in definitions]


def read(folder: Path) -> Sequence[Manifest]:
    """Returns the definitions of all files, in the order of the file names. Raises `ApplyError`."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ApplyError(f"{folder} contains no *.yaml files. Give the folder that contains the definitions.")
    return [one for file in files for one in _read_file(file)]


def _read_file(file: Path) -> Sequence[Manifest]:
    try:
        found = list(yaml.safe_load_all(file.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ApplyError(f"Cannot read {file}: {error}") from error
    for one in found:
        kind = one.get("kind") if isinstance(one, dict) else one
        if kind != KIND:
            raise ApplyError(f"{file} contains {kind!r}. It may contain only objects of the kind {KIND}.")
    return found


async def _apply(kube: Kube, definition: Manifest) -> None:
    name = definition["metadata"]["name"]
    deadline = time.monotonic() + ESTABLISHED_SECONDS_MAX
    try:
        before = await kube.find_definition(name)
        if before is not None and _revision(before) > _revision(definition):
            log.warning("keeping the definition of a newer release", definition=name)
            return
        there = await kube.apply_definition(definition)
        while not _is_established(there):
            if time.monotonic() > deadline:
                raise ApplyError(
                    f"The API server does not serve {name} after {ESTABLISHED_SECONDS_MAX:g} s: {_why(there)}"
                )
            await asyncio.sleep(ESTABLISHED_CHECK_SECONDS)
            there = await kube.find_definition(name) or there
    except KUBE_FAILURES as error:
        raise ApplyError(f"Cannot apply {name}: {reason_of(error)}") from error


def _revision(definition: Manifest) -> int:
    text = (definition["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _is_established(definition: Manifest) -> bool:
    return any(one["type"] == "Established" and one["status"] == "True" for one in _conditions(definition))


def _why(definition: Manifest) -> str:
    failed = [one["message"] for one in _conditions(definition) if one["status"] == "False"]
    return "; ".join(failed) or "the API server gives no reason"


def _conditions(definition: Manifest) -> Sequence[Manifest]:
    found: Sequence[Manifest] = definition.get("status", {}).get("conditions") or []
    return found
