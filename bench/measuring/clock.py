"""Measures a span of work in a client, from the end of the warm-up to the last answer."""

from __future__ import annotations

import json
from time import perf_counter


class Span:
    """Begins when it is made and ends with `rate`; `over` is true when its seconds have passed."""

    def __init__(self, seconds: float) -> None:
        self._began = perf_counter()
        self._until = self._began + seconds

    @property
    def over(self) -> bool:
        return perf_counter() >= self._until

    def rate(self, records: int, size: int) -> dict[str, float]:
        """Records per second until now, and the same in megabytes of values."""
        seconds = perf_counter() - self._began
        return {
            "value": records / seconds,
            "records": float(records),
            "seconds": seconds,
            "value_mb_per_s": records * size / seconds / 1e6,
        }


def print_result(result: dict[str, float]) -> None:
    """Prints the result on one line, where `harness.processes.run_for_json` looks for it."""
    print(json.dumps(result))
