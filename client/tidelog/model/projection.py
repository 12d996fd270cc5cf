"""What a reader wants of the records: some columns, and only the records that match.

The client checks it before it sends a request, and the broker checks it again. `tidelog.records.projecting`
applies it to batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.model.names import validate_subject_filter
from tidelog.records.schema import COLUMNS_ORDER

PROJECTED_COLUMNS: Final = (*COLUMNS_ORDER, "offset")
"""The columns that a reader can name. The offset is always sent."""

SUBJECT_FILTERS_MAX: Final = 64
"""The subjects of one filter."""

SUBJECT_FILTERS_BYTES_MAX: Final = 4 << 10
"""All subjects of one filter together: they are compiled for each batch."""

KEYS_MAX: Final = 1000
"""The keys of one reader."""

KEYS_BYTES_MAX: Final = 64 << 10
"""All keys of one reader together."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Which columns of which records a reader gets. Raises `InvalidRequest` for wrong values."""

    columns: tuple[str, ...] = ()
    """Names of `PROJECTED_COLUMNS`; empty: all columns."""
    subject_filter: tuple[str, ...] = ()
    """Subjects, with the wildcards of NATS: a record matches if its subject matches one of them. A record
    without a subject never matches. Empty: every record matches."""
    keys: tuple[bytes, ...] = ()
    """A record matches if it has one of these keys. Empty: every record matches."""

    def __post_init__(self) -> None:
        if not (self.columns or self.subject_filter or self.keys):
            raise InvalidRequest(
                "the projection is empty: name columns, subjects or keys, or fetch whole batches (VERBATIM)",
                field="projection",
            )
        self._check_columns()
        _check_size("subject_filter", self.subject_filter, SUBJECT_FILTERS_MAX, SUBJECT_FILTERS_BYTES_MAX)
        _check_size("keys", self.keys, KEYS_MAX, KEYS_BYTES_MAX)
        for subject in self.subject_filter:
            validate_subject_filter(subject)

    def _check_columns(self) -> None:
        unknown = [name for name in self.columns if name not in PROJECTED_COLUMNS]
        if unknown:
            raise InvalidRequest(
                f"columns has {unknown[0][:100]!r}; a record has {', '.join(PROJECTED_COLUMNS)}",
                field="columns",
            )
        if len(set(self.columns)) != len(self.columns):
            raise InvalidRequest(
                f"columns is {', '.join(self.columns[:20])}; name each column once", field="columns"
            )


def _check_size(
    field: str, given: tuple[str, ...] | tuple[bytes, ...], count_max: int, bytes_max: int
) -> None:
    if len(given) > count_max:
        raise InvalidRequest(f"{field} has {len(given)} entries; give at most {count_max}", field=field)
    size = sum(len(one.encode("utf-8", "surrogatepass") if isinstance(one, str) else one) for one in given)
    if size > bytes_max:
        raise InvalidRequest(f"{field} has {size} bytes; give at most {bytes_max} in all", field=field)
