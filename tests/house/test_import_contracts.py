"""The sources keep the import contracts of pyproject.toml, and a planted import breaks each contract."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE_ROOTS = ["proto", "client", "broker", "operator", "spark-jobs"]
PACKAGES = ["e2e"]
"""Packages in the top folder of the repository, beside the source roots."""


class Plant(NamedTuple):
    contract: str  # the beginning of its name in pyproject.toml
    module: str  # a file that is added beside the real files
    imported: str


PLANTS = [
    Plant("Broker, operator and Spark", "proto/tidelog_proto/planted.py", "tidelog.errors"),
    Plant(
        "Broker, operator and Spark",
        "client/tidelog/planted.py",
        "tidelog_broker.errors",
    ),
    Plant(
        "Broker, operator and Spark",
        "spark-jobs/tidelog_spark/planted.py",
        "tidelog_broker.errors",
    ),
    Plant("Broker, operator and Spark", "broker/tidelog_broker/planted.py", "tidelog_spark"),
    Plant(
        "Broker, operator and Spark",
        "operator/tidelog_operator/planted.py",
        "tidelog_broker.errors",
    ),
    Plant("What is tried on a real cluster", "e2e/planted.py", "tidelog_operator.model"),
    Plant("The operator's plans do no I/O", "operator/tidelog_operator/plan/planted.py", "asyncio"),
    Plant("The broker uses only the parts", "broker/tidelog_broker/writing/planted.py", "tidelog.producer"),
    Plant("Inside the library", "client/tidelog/_connecting/planted.py", "tidelog.producer"),
    Plant("Inside the library", "client/tidelog/_reading/planted.py", "tidelog._producing"),
    Plant("Inside the library", "client/tidelog/records/planted.py", "tidelog.model"),
    Plant("Inside the broker", "broker/tidelog_broker/hosting/planted.py", "tidelog_broker.api"),
    Plant("Inside the broker", "broker/tidelog_broker/writing/planted.py", "tidelog_broker.upkeep"),
    Plant("Inside the broker", "broker/tidelog_broker/replication/planted.py", "tidelog_broker.writing"),
    Plant("Inside the broker", "broker/tidelog_broker/quorum/planted.py", "tidelog_broker.replication"),
    Plant("Inside the broker", "broker/tidelog_broker/membership/planted.py", "tidelog_broker.quorum"),
    Plant("Inside the broker", "broker/tidelog_broker/storage/planted.py", "tidelog_broker.writing"),
    Plant("Inside the broker", "broker/tidelog_broker/peers/planted.py", "tidelog_broker.membership"),
    Plant("Inside the broker", "broker/tidelog_broker/peers/planted.py", "tidelog_broker.core.replication"),
    Plant("Inside the broker", "broker/tidelog_broker/storage/planted.py", "tidelog_broker.peers"),
    Plant(
        "Inside storage", "broker/tidelog_broker/storage/files/planted.py", "tidelog_broker.storage.segments"
    ),
    Plant("Inside storage", "broker/tidelog_broker/storage/raft/planted.py", "tidelog_broker.storage.log"),
    Plant(
        "The parts of the core",
        "broker/tidelog_broker/core/metadata/planted.py",
        "tidelog_broker.core.replication",
    ),
    Plant(
        "The parts of the core", "broker/tidelog_broker/core/raft/planted.py", "tidelog_broker.core.metadata"
    ),
    Plant(
        "The parts of the core", "broker/tidelog_broker/core/metadata/planted.py", "tidelog_broker.core.raft"
    ),
    Plant("No packages", "operator/tidelog_operator/resources/planted.py", "tidelog_operator.plan.cluster"),
    Plant("The core is sans-IO", "broker/tidelog_broker/core/replication/planted.py", "time"),
    Plant("The core is sans-IO", "broker/tidelog_broker/core/raft/planted.py", "random"),
    Plant("The core is sans-IO", "broker/tidelog_broker/core/metadata/planted.py", "tidelog_proto"),
]


@pytest.fixture
def sources(repository: Path, tmp_path: Path) -> Path:
    """A copy of all packages of the contracts, to plant imports in."""
    for root in (*SOURCE_ROOTS, *PACKAGES):
        shutil.copytree(repository / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(sources: Path) -> tuple[int, str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    path = os.pathsep.join(str(sources / root) for root in (*SOURCE_ROOTS, "."))
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=sources,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def contract_names(repository: Path) -> list[str]:
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    return [contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]]


def test_the_sources_keep_every_contract(sources: Path) -> None:
    returncode, output = lint_imports(sources)

    assert returncode == 0, output


def test_every_contract_is_tried_with_a_plant(repository: Path) -> None:
    names = contract_names(repository)

    assert [name for name in names if not any(name.startswith(plant.contract) for plant in PLANTS)] == []


@pytest.mark.long
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.module}-imports-{plant.imported}")
def test_a_forbidden_import_breaks_its_contract(sources: Path, repository: Path, plant: Plant) -> None:
    (sources / plant.module).write_text(f"import {plant.imported}\n", encoding="utf-8")

    returncode, output = lint_imports(sources)

    (name,) = [name for name in contract_names(repository) if name.startswith(plant.contract)]
    assert returncode == 1, output
    assert f"{name} BROKEN" in output
