"""Translates the manifest of a container to a process of this machine: command, environment, paths,
addresses. No I/O.

There are no mounts and no DNS: where a text of the pod names a path below a mount, `0.0.0.0`, or a pod by its
DNS name, this module says what that is on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.kube.api import Json

BROKER: Final = "broker"
BROKER_PROGRAM: Final = "tidelog-broker"

_REFERENCE: Final = re.compile(r"\$(?:\$|\((?P<name>[-\w.]+)\))")
_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_POD_NAME: Final = re.compile(
    rf"(?<![\w.-])(?P<pod>{_LABEL})\.{_LABEL}\.(?P<namespace>{_LABEL})\.svc(?:\.cluster\.local)?(?![\w-])"
)
_EVERY_ADDRESS: Final = re.compile(r"(?<![\w.])0\.0\.0\.0(?![\w.])")
_LABEL_FIELD: Final = re.compile(r"metadata\.labels\['(?P<label>[^']+)'\]")


class NotYet(Exception):
    """The container cannot start now; a kubelet reports why, and tries again."""


def broker_container(pod: Json) -> Json | None:
    """Returns the container that runs a broker, if the pod has one."""
    for container in pod["spec"]["containers"]:
        if container["name"] == BROKER and container.get("command", [""])[0] == BROKER_PROGRAM:
            return dict(container)
    return None


def expand(text: str, known: Mapping[str, str]) -> str:
    """Expands `$(NAME)` as Kubernetes does: unknown names stay, and `$$` becomes `$`."""

    def value(found: re.Match[str]) -> str:
        name = found["name"]
        return "$" if name is None else known.get(name, found[0])

    return _REFERENCE.sub(value, text)


@dataclass(frozen=True)
class Surroundings:
    """What the containers of a pod see, and what that is on this machine."""

    pod: Json
    address: str
    """The address of the pod itself."""
    folders: Mapping[str, Path]
    """The folders by mount path."""
    address_of: Callable[[str, str], str]
    """Returns the address of a pod by namespace and name."""

    def resolve(self, text: str) -> str:
        """Returns the text as it must be on this machine."""
        text = _POD_NAME.sub(lambda found: self.address_of(found["namespace"], found["pod"]), text)
        text = _EVERY_ADDRESS.sub(self.address, text)
        # The longest first, and all at once: the path of a folder here may contain another mount path.
        paths = "|".join(re.escape(path) for path in sorted(self.folders, key=len, reverse=True))
        if not paths:
            return text
        return re.sub(rf"(?<![\w./-])(?:{paths})(?![\w.-])", lambda found: str(self.folders[found[0]]), text)

    def path(self, inside: str) -> Path:
        """Returns where a path of the pod is on this machine; it must be below a mount."""
        here = self.resolve(inside)
        assert here != inside, f"{inside} is below no mount of the pod; those are {sorted(self.folders)}"
        return Path(here)

    def environment(self, container: Json) -> dict[str, str]:
        """Returns the environment, resolved. Raises `NotYet` for a source that is not supported here."""
        return {name: self.resolve(value) for name, value in self._variables(container).items()}

    def command(self, container: Json) -> list[str]:
        """Returns program and arguments, resolved."""
        known = self._variables(container)
        words = [*container["command"], *container.get("args", ())]
        return [self.resolve(expand(word, known)) for word in words]

    def _variables(self, container: Json) -> dict[str, str]:
        """Returns the variables; each may refer to those before it."""
        if "envFrom" in container:
            raise NotYet("envFrom is not played here, only env")
        found: dict[str, str] = {}
        for entry in container.get("env", ()):
            found[entry["name"]] = self._value(entry, found)
        return found

    def _value(self, entry: Json, known: Mapping[str, str]) -> str:
        match entry:
            case {"valueFrom": {"fieldRef": {"fieldPath": str(path)}}}:
                return self._field(path)
            case {"valueFrom": source}:
                raise NotYet(f"{entry['name']}: {source} is not played here, only values and fieldRef")
            case _:
                return expand(entry.get("value", ""), known)

    def _field(self, path: str) -> str:
        meta, spec = self.pod["metadata"], self.pod["spec"]
        label = _LABEL_FIELD.fullmatch(path)
        if label is not None:
            return str(meta.get("labels", {}).get(label["label"], ""))
        fields: dict[str, Any] = {
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
            "metadata.uid": meta["uid"],
            "spec.nodeName": spec.get("nodeName", ""),
            "status.podIP": self.address,
            # A pod has no network of its own here.
            "status.hostIP": self.address,
        }
        if path not in fields:
            raise NotYet(f"the field {path} is not played here, only {', '.join(fields)} and labels")
        return str(fields[path])
