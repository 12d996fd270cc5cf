"""What a checkpoint has counted: a small file in it, so that a changed job does not go on with its state.

Spark keeps the state of open windows in the checkpoint, and takes it for any query whose state has the same
types. Without this file, half of a window could be the sum of one column and half of it the sum of another.
"""

from __future__ import annotations

import json
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog_spark.jobs.aggregating.config import Aggregation
from tidelog_spark.lake.stores import Folder

FILE: Final = "definition.json"


def check(folder: Folder, job: Aggregation) -> None:
    """Raises `InvalidRequest` if the checkpoint has counted something else than the job says."""
    content = folder.read(FILE)
    if content is None:
        return
    before = json.loads(content)
    for key, value in job.definition.items():
        if before.get(key) != value:
            raise InvalidRequest(
                f"{key} is {value!r}, but the open windows of the checkpoint were made with "
                f"{before.get(key)!r}; change it back, or give the job a new checkpoint"
            )


def keep(folder: Folder, job: Aggregation) -> None:
    """Notes what the checkpoint counts from now on, if it does not say so yet."""
    folder.create(FILE, json.dumps(job.definition, indent=2).encode())
    check(folder, job)
