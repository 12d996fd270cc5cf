"""`tidelog-operator apply-definitions`, with the rights of the chart's hook before an upgrade."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from support.kube import chart
from support.kube.control_plane import CRDS, ControlPlane
from support.waiting import wait_until
from tidelog_operator.__main__ import app
from tidelog_operator.kubernetes.definitions import REVISION, ApplyError, applied, read

pytestmark = pytest.mark.slow

NAMES = ["clusters.tidelog.io", "ingestions.tidelog.io", "streams.tidelog.io"]
KIND = "CustomResourceDefinition"


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server without the definitions."""
    with ControlPlane(programs, tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture(scope="module")
def account(plane: ControlPlane, programs: Path) -> Path:
    """The kubeconfig of the hook's account, after it has created the definitions."""
    plane.apply_all(chart.definitions_account(programs))
    account = plane.account(chart.NAMESPACE, "tidelog-definitions")
    # Rights take effect a moment after they are granted.
    wait_until(lambda: asyncio.run(_made(account)), "the account has the rights")
    return account


async def _made(account: Path) -> bool:
    try:
        return await applied(CRDS, str(account)) == NAMES
    except ApplyError as error:
        if "forbidden" not in str(error):
            raise
        return False


def fields(plane: ControlPlane) -> set[str]:
    """Returns the fields of a Stream's spec."""
    (version,) = plane.object(KIND, "streams.tidelog.io")["spec"]["versions"]
    return set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


def definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CRDS / f"{name}.yaml").read_text())
    return found


@pytest.mark.usefixtures("account")
def test_a_missing_definition_is_created_and_served(plane: ControlPlane) -> None:
    # An established definition appears in discovery a moment later.
    wait_until(lambda: not plane.refusal("get", ",".join(NAMES)), "the definitions are served")


async def test_an_existing_definition_is_updated_from_the_file(plane: ControlPlane, account: Path) -> None:
    """As Helm created it, from another version: with a removed field, and without a new one."""
    old = definition("stream")
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["tapes"] = {"type": "string"}
    del spec["properties"]["partitions"], spec["x-kubernetes-validations"]
    plane.kubectl("replace", "--field-manager", "helm", "-f", "-", given=old)
    assert "tapes" in fields(plane)

    assert await applied(CRDS, str(account)) == NAMES

    assert "partitions" in fields(plane)
    assert "tapes" not in fields(plane)


async def test_a_definition_of_a_newer_release_stays(plane: ControlPlane, account: Path) -> None:
    newer = definition("stream")
    spec = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["tapes"] = {"type": "string"}
    newer["metadata"]["annotations"][REVISION] = "1000"
    plane.kubectl("replace", "--field-manager", "helm", "-f", "-", given=newer)

    assert await applied(CRDS, str(account)) == NAMES

    assert "tapes" in fields(plane)
    plane.kubectl("replace", "--field-manager", "helm", "-f", "-", given=definition("stream"))


REVISIONS = {
    "cluster": ("6", "e6b396464bcb"),
    "stream": ("2", "dabd8b746684"),
}
"""The revision of each definition, and the digest of its content."""


@pytest.mark.parametrize("name", REVISIONS)
def test_each_change_of_a_definition_has_a_revision_of_its_own(name: str) -> None:
    """Otherwise a release would take another definition for its own. A change increases the revision, and is
    recorded here."""
    found = definition(name)

    content = hashlib.sha256(json.dumps(found["spec"], sort_keys=True).encode()).hexdigest()[:12]

    assert (found["metadata"]["annotations"][REVISION], content) == REVISIONS[name]


async def test_the_account_may_apply_only_these_definitions(
    plane: ControlPlane, account: Path, tmp_path: Path
) -> None:
    other = json.loads(json.dumps(definition("stream")).replace("stream", "tape").replace("Stream", "Tape"))
    (tmp_path / "other.yaml").write_text(json.dumps(other))

    with pytest.raises(ApplyError, match=r"^Cannot apply tapes\.tidelog\.io: .*forbidden"):
        await applied(tmp_path, str(account))

    for words in (
        ("delete", "crd", NAMES[0]),
        ("get", "crd"),
        ("get", "streams.tidelog.io"),
        ("get", "secrets", "--all-namespaces"),
    ):
        assert "orbidden" in plane.refusal("--kubeconfig", str(account), *words), words


@pytest.mark.usefixtures("account")
async def test_a_rejection_shows_the_message_of_the_api_server(plane: ControlPlane, tmp_path: Path) -> None:
    wrong = definition("stream")
    wrong["spec"]["names"]["plural"] = "tapes"
    (tmp_path / "wrong.yaml").write_text(json.dumps(wrong))

    with pytest.raises(ApplyError, match=r"^Cannot apply streams\.tidelog\.io: .*field is immutable"):
        await applied(tmp_path, str(plane.kubeconfig))


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "contains no *.yaml files. Give the folder that contains the definitions."),
        (["a: [", ""], "first.yaml: while parsing"),
        (
            ["kind: Secret"],
            "first.yaml contains 'Secret'. It may contain only objects of the kind CustomResourceDefinition.",
        ),
        (["just words"], "first.yaml contains 'just words'. It may contain only objects of the kind"),
    ],
)
def test_a_folder_with_other_files_is_rejected(tmp_path: Path, texts: Sequence[str], sentence: str) -> None:
    for name, text in zip(("first", "second"), texts, strict=False):
        (tmp_path / f"{name}.yaml").write_text(text)

    with pytest.raises(ApplyError) as refused:
        read(tmp_path)

    assert sentence in str(refused.value)


def test_the_command_reports_success_and_explains_failures(plane: ControlPlane, tmp_path: Path) -> None:
    words = ["apply-definitions", str(CRDS), "--kubeconfig"]

    done = CliRunner().invoke(app, [*words, str(plane.kubeconfig)])
    failed = CliRunner().invoke(app, [*words, str(tmp_path / "none")])

    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [f"{name} is up to date with {CRDS}" for name in NAMES],
    )
    assert failed.exit_code == 1
    assert failed.stderr.startswith("tidelog-operator: Cannot log in to the API server: ")
