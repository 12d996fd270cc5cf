"""A control plane for the tests of a module, if its programs are available."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kube.control_plane import ControlPlane, assets


@pytest.fixture(scope="session")
def programs() -> Path:
    folder, why_not = assets()
    if folder is None:
        # Continuous integration builds them first; there a missing program is an error, and no reason to
        # skip.
        assert not os.environ.get("TIDELOG_KUBE_TESTS"), why_not
        pytest.skip(f"NOT TESTED ON KUBERNETES: {why_not}")
    return folder


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(programs, tmp_path_factory.mktemp("plane")) as made:
        made.add_crds()
        yield made
