"""Short runs of `chaos.spark` on real Spark: a stream, a folder and a table, each with some kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.spark.__main__ import main
from chaos.spark.jobs import Target
from chaos.spark.victims import Victim

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

KILLS = {Target.SINK: len(Victim), Target.PARQUET: 2, Target.ICEBERG: 2}
"""A round kills each victim once. The lakes share all code but the last step, so two kills are enough."""


@pytest.mark.parametrize("target", Target)
def test_a_job_under_kills_writes_each_record_once(target: Target, tmp_path: Path) -> None:
    assert (
        main(["--kills", str(KILLS[target]), "--target", target, "--seed", "1", "--dir", str(tmp_path)]) == 0
    )
