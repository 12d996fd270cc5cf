"""A job runs with what the image `spark` keeps of PySpark."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from spark.programs.running import running_job
from spark.samples import send
from support.trio import Trio
from tidelog import blocking

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

DOCKERFILE = Path(__file__).parents[3] / "Dockerfile"
RECORDS = 100
JOB_SECONDS_MAX = 240


def _left_out() -> list[str]:
    """The patterns of files and folders that the Dockerfile removes from PySpark."""
    text = DOCKERFILE.read_text().replace("\\\n", "")
    found = re.search(r"cd \S+/site-packages/pyspark && +rm -rf ([^&]+) &&", text)
    assert found is not None, "the Dockerfile removes parts of PySpark"
    return found[1].split()


def _mirror(source: Path, target: Path, left_out: Sequence[str], name: str = "") -> None:
    """Makes a folder of links to all of `source` but what matches a pattern, which is relative to the top."""
    target.mkdir()
    for child in sorted(source.iterdir()):
        path = f"{name}{child.name}"
        if any(fnmatch(path, pattern) for pattern in left_out):
            continue
        if child.is_dir() and any(pattern.startswith(f"{path}/") for pattern in left_out):
            _mirror(child, target / child.name, left_out, f"{path}/")
        else:
            (target / child.name).symlink_to(child)


def test_a_job_needs_no_part_of_pyspark_that_the_image_lacks(
    log: blocking.Client,
    stream: Callable[..., str],
    brokers: Trio,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = stream(2)
    send(log, name, RECORDS)
    kept = tmp_path / "kept/pyspark"
    kept.parent.mkdir()
    _mirror(Path(pyspark.__file__).parent, kept, _left_out())
    monkeypatch.setenv("PYTHONPATH", str(kept.parent))
    monkeypatch.setenv("SPARK_HOME", str(kept))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    settings = [
        f"servers={brokers.address}", f"source.streams=[{name}]", f"checkpoint={tmp_path}/checkpoint",
        f"sink.parquet={{path: {tmp_path}/lake}}",
    ]  # fmt: skip

    with running_job("ingest.py", settings, tmp_path) as running:
        ended = running.wait(JOB_SECONDS_MAX)

    assert ended == 0, (tmp_path / "job.log").read_text()
    assert ds.dataset(str(tmp_path / "lake")).count_rows() == RECORDS
