"""Kubernetes' definitions of Clusters and Streams, applied from files.

Helm makes them when a chart is first installed, and never looks at them again. So before an upgrade the
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
"""An annotation that counts up with each change. What a newer release has applied stays: else objects would
lose the fields that it brought."""

ESTABLISHED_SECONDS_MAX: Final = 30.0
ESTABLISHED_CHECK_SECONDS: Final = 0.2


log = structlog.get_logger(__name__)


class ApplyError(Exception):
    """Why not, and of which definition; those before it are applied. To be run again when that is mended."""


async def applied(folder: Path, kubeconfig: str = "") -> Sequence[str]:
    """The names of all definitions below `folder`, which the API server serves now. Raises `NotApplied`."""
    definitions = read(folder)
    try:
        async with Kube(kubeconfig) as kube:
            for one in definitions:
                await _apply(kube, one)
    except ConfigException as error:
        raise ApplyError(f"cannot log in: {error}; run it in a pod, or give --kubeconfig") from error
    return [one["metadata"]["name"] for one in definitions]


def read(folder: Path) -> Sequence[Manifest]:
    """All that the folder's files say, in order of their names. Raises `NotApplied`."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ApplyError(f"{folder} holds no definitions: there are no *.yaml files")
    return [one for file in files for one in _read_file(file)]


def _read_file(file: Path) -> Sequence[Manifest]:
    try:
        found = list(yaml.safe_load_all(file.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ApplyError(f"{file} cannot be read: {error}") from error
    for one in found:
        kind = one.get("kind") if isinstance(one, dict) else one
        if kind != KIND:
            raise ApplyError(f"{file} holds {kind!r}; it is to hold nothing but a {KIND}")
    return found


async def _apply(kube: Kube, definition: Manifest) -> None:
    name = definition["metadata"]["name"]
    deadline = time.monotonic() + ESTABLISHED_SECONDS_MAX
    try:
        before = await kube.find_definition(name)
        if before is not None and _revision(before) > _revision(definition):
            log.warning("a newer release has applied this definition; it stays", definition=name)
            return
        there = await kube.apply_definition(definition)
        while not _is_established(there):
            if time.monotonic() > deadline:
                raise ApplyError(f"{name} is not served after {ESTABLISHED_SECONDS_MAX:g} s: {_why(there)}")
            await asyncio.sleep(ESTABLISHED_CHECK_SECONDS)
            there = await kube.find_definition(name) or there
    except KUBE_FAILURES as error:
        raise ApplyError(f"{name} is not applied: {reason_of(error)}") from error


def _revision(definition: Manifest) -> int:
    text = (definition["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _is_established(definition: Manifest) -> bool:
    return any(one["type"] == "Established" and one["status"] == "True" for one in _conditions(definition))


def _why(definition: Manifest) -> str:
    failed = [one["message"] for one in _conditions(definition) if one["status"] == "False"]
    return "; ".join(failed) or "the API server does not say why"


def _conditions(definition: Manifest) -> Sequence[Manifest]:
    found: Sequence[Manifest] = definition.get("status", {}).get("conditions") or []
    return found
