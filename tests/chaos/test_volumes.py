"""Volumes that are put back or rot: a refused volume is emptied; a rotten segment must be repaired."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from chaos import volumes
from chaos.clocks import faked_clock
from chaos.cluster import ClusterFailure
from chaos.volumes import Volumes
from tidelog_broker.__main__ import EXIT_DAMAGED


class FakeCluster:
    """One broker. `ends`: the exit codes of its next starts; None: it serves."""

    def __init__(self, folder: Path, ends: list[int | None]) -> None:
        self.folder = folder
        self.said: list[str] = []
        self._ends = ends
        (self.data(1) / "streams").mkdir(parents=True)
        (self.data(1) / "streams" / "0.log").write_bytes(b"records")

    def data(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}"

    async def kill(self, broker: int) -> None:
        self.said.append("kill")

    async def launch(self, broker: int) -> None:
        self.said.append("launch")

    async def ready(self, broker: int) -> None:
        (self.data(broker) / "written since").touch()

    async def ready_or_ended(self, broker: int) -> int | None:
        self.said.append(f"with {sorted(path.name for path in self.data(broker).iterdir())}")
        return self._ends.pop(0)

    async def erase(self, broker: int) -> None:
        self.said.append("erase")
        shutil.rmtree(self.data(broker))


async def healed(what: str) -> None:
    return


def made(cluster: FakeCluster) -> Volumes:
    return Volumes(cluster, random.Random(1), cluster.said.append)  # type: ignore[arg-type]


async def test_a_broker_is_started_on_the_copy_and_then_emptied(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, [EXIT_DAMAGED])

    await made(cluster).put_back(1, 0.0, healed)

    begun = ["kill", "launch", "kill", "erase", "launch"]
    assert cluster.said == [*begun, "with ['streams']", "kill", "erase", "launch"]


@pytest.mark.parametrize("code", [None, 0, 1])
async def test_a_broker_that_does_not_refuse_a_copy_is_a_failure(tmp_path: Path, code: int | None) -> None:
    with pytest.raises(ClusterFailure, match="did not refuse"):
        await made(FakeCluster(tmp_path, [code])).put_back(1, 0.0, healed)


async def test_a_volume_that_its_broker_refuses_is_emptied(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, [EXIT_DAMAGED])

    await made(cluster).rot(1)

    assert cluster.said[-3:] == ["kill", "erase", "launch"]


async def test_an_unexpected_exit_code_on_a_rotten_file_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ClusterFailure, match="ended with code 1"):
        await made(FakeCluster(tmp_path, [1])).rot(1)


async def test_a_segment_whose_flipped_bit_is_not_repaired_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volumes, "HEALED_SECONDS_MAX", 0.0)
    cluster = FakeCluster(tmp_path, [None])

    with pytest.raises(ClusterFailure, match="was not repaired"):
        await made(cluster).rot(1)

    found = (cluster.data(1) / "streams" / "0.log").read_bytes()
    assert sum((one ^ other).bit_count() for one, other in zip(found, b"records", strict=True)) == 1


def test_a_faked_clock_leaves_elapsed_time_right(tmp_path: Path) -> None:
    environment = faked_clock(tmp_path / "lib.so", tmp_path / "offset")

    assert environment["LD_PRELOAD"] == str(tmp_path / "lib.so")
    assert environment["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
