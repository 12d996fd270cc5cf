"""One control plane serves all tests of this folder: nothing here changes what another test depends on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kube.control_plane import ControlPlane


@pytest.fixture(scope="session")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(programs, tmp_path_factory.mktemp("plane")) as made:
        made.add_crds()
        yield made
