"""Lists and counts in sentences for users: `1, 2, 3`, never Python's `[1, 2, 3]`, and `1 record`."""

from __future__ import annotations

from collections.abc import Iterable


def listed(values: Iterable[object], *, at_most: int | None = None) -> str:
    """The values in their order; of more than `at_most` the first and a count; of no values, `none`."""
    every = [str(value) for value in values]
    shown = every[:at_most]
    more = f" and {len(every) - len(shown)} more" if len(every) > len(shown) else ""
    return (", ".join(shown) or "none") + more


def count_of(number: int, what: str, several: str = "") -> str:
    """``1 record``, ``2 records``; `several` is the plural where it is not `what` with an s."""
    return f"{number} {what if number == 1 else several or what + 's'}"
