"""The project's chart (charts/tidelog), as Helm renders it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[3] / "charts" / "tidelog"
RELEASE, NAMESPACE = "tidelog", "tidelog-system"

EVERYWHERE = {"operator": {"allNamespaces": True}}
"""Values of a release whose operator watches all namespaces."""

ACCOUNT_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")

Manifest = dict[str, Any]


def helm(programs: Path, *words: str, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
    """Runs helm and returns its result, successful or not. `values`: used where the arguments contain
    `--values -`."""
    given = json.dumps(values or {})
    return subprocess.run(
        [programs / "helm", *words], input=given, capture_output=True, text=True, check=False
    )


def rendered(
    programs: Path, values: Manifest | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> Sequence[Manifest]:
    """Returns all objects of a release, hooks and tests included, without the definitions."""
    done = templated(programs, values, release=release, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def templated(
    programs: Path, values: Manifest | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """Runs `helm template` and returns its result."""
    words = ("template", release, str(CHART), "--namespace", namespace, "--values", "-")
    return helm(programs, *words, values=values)


def operators_account(
    programs: Path, values: Manifest = EVERYWHERE, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> Sequence[Manifest]:
    """Returns the operator's namespace, service account, and rights."""
    lasting = _lasting(rendered(programs, values, release=release, namespace=namespace))
    return [_namespace(namespace), *(one for one in lasting if one["kind"] in ACCOUNT_KINDS)]


def definitions_account(programs: Path) -> Sequence[Manifest]:
    """Returns the namespace, service account, and rights of the hook before an upgrade."""
    hooks = [one for one in rendered(programs) if is_hook(one)]
    return [_namespace(NAMESPACE), *(one for one in hooks if one["kind"] in ACCOUNT_KINDS)]


def policy(programs: Path) -> Sequence[Manifest]:
    """Returns the policy that guards the number of brokers."""
    lasting = _lasting(rendered(programs, EVERYWHERE))
    return [one for one in lasting if one["kind"].startswith("ValidatingAdmission")]


def _lasting(manifests: Sequence[Manifest]) -> Sequence[Manifest]:
    return [one for one in manifests if not is_hook(one)]


def is_hook(manifest: Manifest) -> bool:
    """Whether the object is a hook or a test: it exists only while Helm runs."""
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


def _namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
