"""What is done for a target after its batches, and what happens if that fails.

No batch depends on the upkeep, so a step that fails does not stop the batches: it is told, and tried again
after a later batch. The end of the process is no failure of a step. Each step leaves the target correct
wherever it ends; the modules of the steps say how.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the upkeep."""

    name: str
    """As the subject of a sentence: The merge of small files …"""
    run: Callable[[], object]


def keep_up(steps: Iterable[Step]) -> None:
    """Runs the steps, each also after another one has failed."""
    for step in steps:
        try:
            step.run()
        except Exception as error:
            log.warning(
                "%s failed: %s. The batch is written; a later batch tries the upkeep again.",
                step.name,
                f"{type(error).__name__}: {error}".rstrip("."),
            )
