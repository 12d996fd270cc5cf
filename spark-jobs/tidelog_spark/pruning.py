"""The columns and records that brokers leave out, as the options say it. Pure.

Spark tells a Python data source neither columns nor filters that it can trust: plans of one frame share the
source, so a filter of one plan would change the rows of another. So these options are explicit, and they
hold for every use of the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.errors import InvalidRequest
from tidelog.model import Projection
from tidelog_spark.option_values import Given
from tidelog_spark.payload import BAD_RECORD

ROW_COLUMNS: Final = (
    "key",
    "value",
    "stream",
    "partition",
    "offset",
    "timestamp",
    "subject",
    "leader_epoch",
    "headers",
)
"""The columns of a row in Spark (`schema`), without the one for bad records."""

STORED_COLUMNS: Final = ("key", "value", "headers", "subject", "timestamp")
"""Those that brokers store. The others are made in the task."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """What brokers send. Empty fields: everything."""

    columns: tuple[str, ...] = ()
    """Of `ROW_COLUMNS`, and the one for bad records, in the order of the row."""
    subjects: tuple[str, ...] = ()
    """NATS subjects with wildcards; only records whose subject matches one of them."""
    keys: tuple[bytes, ...] = ()
    """Only records with one of these keys."""

    def reader_settings(self, columns: tuple[str, ...]) -> dict[str, Any]:
        """The arguments of a reader of `tidelog` for rows of `columns`."""
        settings: dict[str, Any] = {}
        if self.columns:
            # The offset costs nothing; without it the list would be empty, which means all columns.
            settings["columns"] = [name for name in STORED_COLUMNS if name in columns] or ["offset"]
        if self.subjects:
            settings["subject_filter"] = list(self.subjects)
        if self.keys:
            settings["keys"] = list(self.keys)
        return settings


def pruning(values: Given, *, headers: bool, bad_records: bool) -> Pruning:
    """The pruning options; raises `InvalidRequest` for a value that is not allowed.

    `headers`, `bad_records`: whether other options ask for these columns.
    """
    found = Pruning(
        _columns(values, headers=headers, bad_records=bad_records), _subjects(values), _keys(values)
    )
    if found.subjects:
        _check("subjectFilter", "subject_filter", Projection, subject_filter=found.subjects)
    if found.keys:
        _check("keys", "keys", Projection, keys=found.keys)
    return found


def _check(option: str, field: str, make: Callable[..., object], **given: object) -> None:
    """Raises an `InvalidRequest` that names the option, where a projection would name its field or none."""
    try:
        make(**given)
    except InvalidRequest as error:
        rest = error.message.removeprefix(field)
        raise InvalidRequest(f"{option}{rest}" if rest != error.message else f"{option}: {rest}") from None


def _columns(values: Given, *, headers: bool, bad_records: bool) -> tuple[str, ...]:
    if "columns" not in values:
        return ()
    columns = values.names("columns")
    if BAD_RECORD in columns and not bad_records:
        raise InvalidRequest(
            f"columns names {BAD_RECORD}, but this column exists only with badRecords=column; set badRecords "
            f"to 'column', or remove {BAD_RECORD} from columns"
        )
    known = (*ROW_COLUMNS, BAD_RECORD) if bad_records else ROW_COLUMNS
    unknown = [name for name in columns if name not in known]
    if unknown or not columns:
        raise values.wrong("columns", f"names of columns with commas between them: {', '.join(known)}")
    if headers and "headers" not in columns:
        raise InvalidRequest(
            "includeHeaders is 'true', but columns does not name headers; add headers to columns, or remove "
            "includeHeaders"
        )
    if bad_records and BAD_RECORD not in columns:
        raise InvalidRequest(
            f"badRecords is 'column', but columns does not name {BAD_RECORD}; add {BAD_RECORD} to columns, "
            "or set badRecords to 'fail' or 'drop'"
        )
    return columns


def _subjects(values: Given) -> tuple[str, ...]:
    if "subjectFilter" not in values:
        return ()
    # A subject has no spaces, but it may have commas.
    subjects = tuple(dict.fromkeys((values.text("subjectFilter") or "").split()))
    if not subjects:
        raise values.wrong(
            "subjectFilter", "one or more subjects with spaces between them, as in 'orders.*.eu'"
        )
    return subjects


def _keys(values: Given) -> tuple[bytes, ...]:
    if "key" in values and "keys" in values:
        raise InvalidRequest("key and keys are given together; give key for one key, keys for several")
    key = values.exact("key")
    if key is not None:
        return (key.encode(),)
    if "keys" not in values:
        return ()
    right = 'a JSON list of keys as text, as in \'["customer-1", "customer-2"]\''
    found = values.json("keys", right)
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise values.wrong("keys", right)
    try:
        return tuple(dict.fromkeys(one.encode() for one in found))
    except UnicodeEncodeError:
        raise values.wrong("keys", right) from None
